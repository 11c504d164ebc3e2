"""The page, parsed as a browser would."""

import base64
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mt.attention_maps.alignment import AttentionMaps
from mt.attention_maps.page import attention_html, attention_page, script_hash

if TYPE_CHECKING:
    pass

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
    assert data["layer"] == maps.heads.layer
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
