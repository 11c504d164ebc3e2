"""The page: parsed as a browser would, and opened in one where there is one."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from mt.attention_maps.alignment import AttentionMaps
from mt.attention_maps.page import attention_html, attention_page, script_hash
from mt.inference.alignment_layer import AlignmentLayer
from mt.inference.attention import SentenceAttention
from mt.inference.labels import Token

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCRIPTS = re.compile("<script.*?>(.*?)</script>", re.DOTALL)


def data_of(page: str) -> Any:
    return json.loads(SCRIPTS.findall(page)[0])


def test_text_of_the_user_is_data_and_nothing_is_loaded(maps: AttentionMaps) -> None:
    page = attention_page(maps, "<img src=x onerror=alert(1)> \x1b[31m")
    assert len(SCRIPTS.findall(page)) == page.count("</script>") == 2
    markup = SCRIPTS.sub("", page)
    assert "&lt;img src=x onerror=alert(1)&gt; \\x1b[31m" in markup
    assert "\x1b" not in page
    [first, _] = data_of(page)["sentences"]
    assert first["source"] == "<script>alert(1)</script> \\x1b[31m"
    assert [label for label, _ in first["src"]][:4] == ["<", "script", ">", "alert"]
    assert not re.search(r"<[^>]* (src|href|onload|onclick)=", markup)
    [policy] = re.findall('http-equiv="Content-Security-Policy" content="(.*?)"', markup)
    assert policy.startswith("default-src 'none'")
    assert script_hash() in policy


def test_the_weights_are_those_that_were_recorded(maps: AttentionMaps) -> None:
    data = data_of(attention_html(maps))
    assert data["layer"] == maps.layer.index
    for shown, sentence in zip(data["sentences"], maps.sentences, strict=True):
        for kind, weights in (
            ("cross", sentence.cross),
            ("encoder", sentence.encoder_self),
            ("decoder", sentence.decoder_self),
        ):
            packed = shown["maps"][kind]
            assert (packed["layers"], packed["heads"]) == weights.shape[:2]
            found = np.frombuffer(base64.b64decode(packed["weights"]), "<u2").reshape(weights.shape) / 65535
            np.testing.assert_allclose(found, weights, atol=1e-5)


def large_maps(num_tokens: int = 40, layers: int = 6, heads: int = 8) -> AttentionMaps:
    torch.manual_seed(1)
    tokens = [*(Token(f"token{place}", place) for place in range(num_tokens)), Token("</s>", None)]
    shape = (layers, heads, num_tokens + 1, num_tokens + 1)
    cross, encoder, decoder = (torch.randn(shape).mul(3).softmax(-1) for _ in range(3))
    text = " ".join(token.label for token in tokens[:-1])
    ids = list(range(num_tokens))
    sentence = SentenceAttention(1, text, text, tokens, tokens, ids, ids, encoder, decoder, cross)
    return AttentionMaps([sentence], AlignmentLayer(layers - 1, 0.8))


# ---- in a browser ----

Open = Callable[..., "Page"]


@pytest.fixture
def open_page(tmp_path: Path, open_address: Open) -> Open:
    """Opens a page at a width."""

    def show(maps: AttentionMaps, width: int, **options: Any) -> "Page":
        file = tmp_path / "attention.html"
        file.write_text(attention_page(maps, "run <b>x</b>"), encoding="utf-8")
        page: Page = open_address(file.as_uri(), width, **options)
        return page

    return show


@pytest.mark.parametrize("width", [1280, 390])
def test_a_head_is_clicked_a_cell_pointed_at_and_its_weight_read(
    width: int, maps: AttentionMaps, open_page: Open
) -> None:
    page = open_page(maps, width)
    page.click(".list li:nth-child(2) button")
    page.click("[aria-label='Cross-attention, layer 1, head 2']")
    assert page.text_content(".large h2") == "Cross-attention, layer 1, head 2"
    sentence = maps.sentences[1]
    row, col = 2, 3
    # Where the cell is: by the keyboard first, which needs no place, then by the mouse.
    page.focus(".scroll canvas")
    for key in ("ArrowDown", *["ArrowDown"] * row, *["ArrowRight"] * col):
        page.keyboard.press(key)
    expected = (
        sentence.tgt_tokens[row].label,
        sentence.src_tokens[col].label,
        sentence.cross[0, 1, row, col],
    )
    assert_reads(page, *expected)
    place = page.evaluate("document.querySelector('.scroll canvas').dataset.cell").split()
    page.keyboard.press("Tab")
    assert "Point at a cell" in (page.text_content(".readout") or "")
    page.locator(".scroll canvas").hover(position={"x": float(place[0]), "y": float(place[1])})
    assert_reads(page, *expected)
    assert page.text_content(".tokens.tgt .is-row") == expected[0]
    assert page.text_content(".tokens.src .is-col") == expected[1]
    # The page itself never scrolls sideways.
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def assert_reads(page: "Page", row: str, column: str, weight: torch.Tensor) -> None:
    readout = page.text_content(".readout") or ""
    assert readout.startswith(f"{row} attends to {column}: ")
    assert abs(float(page.text_content(".readout .weight") or "nan") - float(weight)) < 1e-3


def test_text_appears_as_it_is_with_the_number_of_its_line(maps: AttentionMaps, open_page: Open) -> None:
    first, second = maps.sentences
    nothing = replace(first, line=2, src_ids=[])
    page = open_page(AttentionMaps([first, nothing, replace(second, line=3)], maps.layer), 1280)
    assert "<script>alert(1)</script> \\x1b[31m" in (page.text_content(".list") or "")
    assert page.locator(".tokens.src .token").all_text_contents()[:3] == ["<", "script", ">"]
    assert "run <b>x</b>" in (page.text_content("h1") or "")
    # A sentence without text is left out.
    assert [text.split(".")[0] for text in page.locator(".list button").all_text_contents()] == ["1", "3"]


def test_every_layer_and_head_of_each_attention_is_shown(open_page: Open) -> None:
    page = open_page(large_maps(8, layers=3, heads=4), 1280)
    for kind in ("Cross-attention", "Encoder self-attention", "Decoder self-attention"):
        page.click(f"text={kind} >> nth=0")
        names = [each.get_attribute("aria-label") for each in page.locator(".heads button").all()]
        assert {f"{kind}, layer {layer}, head {head}" for layer in (1, 2, 3) for head in (1, 2, 3, 4)} <= set(
            names
        )
    # A column of the decoder is what it has read, which begins with BOS and is the row above.
    page.focus(".scroll canvas")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert (page.text_content(".readout") or "").startswith("token2 attends to <s>: ")
    page.keyboard.press("ArrowRight")
    assert (page.text_content(".readout") or "").startswith("token2 attends to token0: ")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_more_weight_is_further_from_the_paper(scheme: str, open_page: Open) -> None:
    maps = large_maps(3, layers=1, heads=1)
    maps.sentences[0].cross[0, 0, 0] = torch.tensor([0.0, 0.1, 0.4, 1.0])
    page = open_page(maps, 1280, color_scheme=scheme)
    shades = page.evaluate(
        "[...document.querySelector('.heads canvas').getContext('2d').getImageData(0, 0, 4, 1).data]"
    )
    lightness = [sum(shades[4 * place : 4 * place + 3]) for place in range(4)]
    assert lightness == sorted(lightness, reverse=scheme == "light")
    assert len(set(lightness)) == 4
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) > 384) == (scheme == "light")
