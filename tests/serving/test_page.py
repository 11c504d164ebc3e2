"""The page: as the service sends it, and in a browser where there is one."""

import base64
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

from mt.inference.model_translator import ModelTranslator
from mt.search.strategy import Beam
from mt.serving.app import Service
from mt.serving.page import PAGE
from mt.serving.request import Limits

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
SENTENCE = "Anna buys two red apples today."


def test_only_its_own_script_and_style_run_and_only_its_own_service_is_asked() -> None:
    answer = TestClient(Service([], Limits()).app()).get("/")
    assert answer.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    for tag in ("script", "style"):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    links = {link for link in re.findall(r"""(?:https?:|//)[^\s"'<>)]*""", answer.text) if "." in link}
    assert links == {"http://www.w3.org/2000/svg"}  # A name, not an address.
    assert not re.search(r"""\s(?:src|href|style|on\w+)=""", PAGE)
    assert "innerHTML" not in PAGE


# ---- in a browser ----

Open = Callable[..., "Page"]


@pytest.fixture
def open_page(serving: Callable[..., AbstractContextManager[int]]) -> Iterator[Open]:
    """Opens the page at a width; demands at the end that its console was silent and nobody else was asked."""
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    said: list[str] = []
    with ExitStack() as stack:
        browser = stack.enter_context(api.sync_playwright()).chromium.launch(
            executable_path=CHROMIUM, args=FLAGS
        )
        stack.callback(browser.close)

        def show(width: int, *, token: str | None = None, **options: Any) -> Any:
            address = f"http://127.0.0.1:{stack.enter_context(serving(token=token))}/"
            page = browser.new_page(viewport={"width": width, "height": 900}, **options)
            page.on("console", lambda message: said.append(message.text))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("dialog", lambda dialog: said.append(dialog.message))
            page.on(
                "request",
                lambda request: said.extend([] if request.url.startswith(address) else [request.url]),
            )
            page.goto(address)
            return page

        yield show
    # What a browser says of every refusal.
    assert [text for text in said if "the server responded with a status of" not in text] == []


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


@pytest.mark.parametrize("width", [1280, 390])
def test_a_sentence_is_translated_while_it_is_typed_with_alternatives_and_lines(
    width: int, open_page: Open, reference: ModelTranslator
) -> None:
    page = open_page(width)
    [alone] = reference.n_best([SENTENCE], strategy=Beam(5), num_best=5)
    # The field has the focus from the beginning.
    page.keyboard.type(SENTENCE)
    expect(page.locator("#translation")).to_have_text(alone[0].text)
    expect(page.locator("#tgt")).to_have_text("Translation: de")
    buttons = page.locator("#alternatives button")
    # While it is typed, its beginnings may have the same best translation.
    expect(buttons.locator("span:first-child")).to_have_text([each.text for each in alone])
    assert page.locator("#source .word").all_text_contents() == SENTENCE.split()
    assert page.locator("#lines path").count() >= len(alone[0].text.split())
    # The other translations are chosen with the keyboard.
    buttons.nth(1).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#translation")).to_have_text(alone[1].text)
    assert buttons.nth(1).get_attribute("aria-pressed") == "true"
    assert page.locator("#target .word").all_text_contents() == alone[1].text.split()
    # So is a word, whose lines are then named.
    page.locator("#target .word").first.focus()
    page.keyboard.press("ArrowRight")
    assert (page.locator("#links").text_content() or "").startswith(f"{alone[1].text.split()[1]} – ")
    assert page.locator("#pair").get_attribute("class") == ("wide" if width > 1000 else "tall") + " pointing"
    # The page itself never scrolls sideways.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#text").fill("")
    expect(page.locator("#translation")).to_have_text("")
    expect(page.locator("#words")).to_be_hidden()


def test_markup_is_text(open_page: Open) -> None:
    page = open_page(1280)
    page.locator("#text").fill("<img src=x onerror=alert(1)> milk.")
    # An element would have no text, and a dialog would be noticed.
    expect(page.locator("#source .word").first).to_have_text("<img")
    assert page.locator("main script, main img").count() == 0


def test_a_long_text_is_translated_without_alternatives(open_page: Open, reference: ModelTranslator) -> None:
    page = open_page(390)
    text = "Anna buys milk. " * 8
    page.locator("#text").fill(text)
    [expected] = reference.translate([text])
    expect(page.locator("#translation")).to_have_text(expected)
    expect(page.locator("#others")).to_be_hidden()
    page.locator("#text").fill("milk " * 40)
    expect(page.locator("#status")).to_contain_text("has a sentence of 41 tokens")


def test_the_page_asks_for_the_token(open_page: Open, reference: ModelTranslator) -> None:
    page = open_page(1280, token="s3cret")
    page.locator("#text").fill(SENTENCE)
    page.locator("#token").fill("s3cret")
    page.keyboard.press("Tab")
    [expected] = reference.translate([SENTENCE], strategy=Beam(5))
    expect(page.locator("#translation")).to_have_text(expected)
