"""The page in a browser, and the service in a process of its own."""

import json
import re
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi.testclient import TestClient

from mt.inference.model_translator import ModelTranslator
from mt.search.strategy import Beam
from mt.serving.app import Service
from tests.serving.conftest import serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

SENTENCE = "Anna buys two red apples today."


def test_the_page_loads_nothing_and_inserts_no_markup() -> None:
    answer = TestClient(Service([]).app()).get("/")
    assert answer.status_code == 200
    links = {link for link in re.findall(r"""(?:https?:|//)[^\s"'<>)]*""", answer.text) if "." in link}
    assert links == {"http://www.w3.org/2000/svg"}  # A name, not an address.
    assert not re.search(r"""\s(?:src|href|style|on\w+)=""", answer.text)
    assert "innerHTML" not in answer.text


# ---- in a browser ----

Open = Callable[..., "Page"]


@pytest.fixture
def open_page(_trained: Path, open_address: Open) -> Iterator[Open]:
    """Serves the page, and opens it at a width."""
    with ExitStack() as stack:

        def show(width: int, *options: str) -> Any:
            address, _ = stack.enter_context(serving(_trained, *options))
            return open_address(address, width)

        yield show


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


def test_a_long_text_markup_and_a_token(open_page: Open, reference: ModelTranslator, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    page = open_page(390, "--token-file", str(token))
    page.locator("#text").fill(SENTENCE)
    # It asks for the token.
    page.locator("#token").fill("s3cret")
    page.keyboard.press("Tab")
    [expected] = reference.translate([SENTENCE], strategy=Beam(5))
    expect(page.locator("#translation")).to_have_text(expected)
    text = "Anna buys milk. " * 8
    page.locator("#text").fill(text)
    [expected] = reference.translate([text])
    expect(page.locator("#translation")).to_have_text(expected)
    expect(page.locator("#others")).to_be_hidden()
    page.locator("#text").fill("milk " * 40)
    expect(page.locator("#status")).to_contain_text("has a sentence of 41 tokens")
    # An element would have no text, and a dialog would be noticed.
    page.locator("#text").fill("<img src=x onerror=alert(1)> milk.")
    expect(page.locator("#source .word").first).to_have_text("<img")
    assert page.locator("main script, main img").count() == 0


# ---- in a process of its own ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_the_next_step_of_a_search(
    number: signal.Signals, start_endless: Callable[..., Any]
) -> None:
    with start_endless("serve", "--port", "0", "--device", "cpu", "--timeout", "600") as process:
        try:
            while "serving at" not in (line := process.stderr.readline()):
                assert line, "it ended"
            port = int(line.split(";")[0].rpartition(":")[2])
            # Not HTTP, a body that never ends, and one that takes minutes.
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"No colon\r\n\r\n")
                assert client.recv(100).startswith(b"HTTP/1.1 400")
            head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            body = json.dumps({"texts": ["milk " * 200] * 8})
            with ExitStack() as stack:
                for sent in ("{", body):
                    client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{sent}".encode())
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
                    assert json.load(answer)["status"] == "ok"
                while "searching in" not in process.stderr.readline():
                    pass
                process.send_signal(number)
                assert process.wait(60) == 0
        finally:
            process.kill()
