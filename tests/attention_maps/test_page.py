"""The page, parsed as a browser would; pictures, read by other programs."""

import base64
import json
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from mt.attention_maps.alignment import AttentionMaps, attention_maps
from mt.attention_maps.page import attention_html, attention_page, script_hash
from mt.inference.model_translator import ModelTranslator

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
    assert (data["layer"], data["heads"]) == (maps.heads.layer, maps.heads.num_heads) == (0, 2)
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


def test_a_picture_is_one_whatever_the_text_and_always_the_same(translator: ModelTranslator) -> None:
    pytest.importorskip("matplotlib")
    from mt.attention_maps.picture import picture

    maps = attention_maps(translator, ["Anna $x^ <b> & buys \x1b \ufffe 说 milk"])
    svg = picture(maps, "svg")
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    # Labels are drawn as shapes, with their text in a comment.
    words = [token.label for token in maps.sentences[0].tgt.tokens if token.word is not None]
    assert all(word in svg.decode() for word in words)
    assert svg == picture(maps, "svg")
    # The source is above the columns, which are drawn before the labels of the rows.
    other = picture(attention_maps(translator, ["milk"]), "svg").decode()
    assert 0 < other.index("<!-- milk -->") < other.index("<!-- Milch -->")
