"""Pictures and word alignments, read by other programs."""

from importlib.util import find_spec
from xml.etree import ElementTree

import pytest

from mt.attention_maps.alignment import as_pharaoh, attention_maps
from mt.inference.model_translator import ModelTranslator


def test_pharaoh_has_a_line_for_each_line(translator: ModelTranslator) -> None:
    maps = attention_maps(translator, ["Anna buys milk.", "", "the dog sees milk."])
    lines = "".join(as_pharaoh(maps.heads, maps.sentences)).split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    for line, sentence in ((lines[0], maps.sentences[0]), (lines[2], maps.sentences[2])):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert links == sorted(links)
        # Each target word has one source word, by the spaces of both sentences.
        assert sorted(j for _, j in links) == list(range(len(sentence.tgt.text.split())))
        assert all(i < len(sentence.src.text.split()) for i, _ in links)


pictures = pytest.mark.skipif(find_spec("matplotlib") is None, reason="there is no matplotlib")


@pictures
def test_a_picture_is_one_whatever_the_text_and_always_the_same(translator: ModelTranslator) -> None:
    from mt.attention_maps.picture import picture

    maps = attention_maps(translator, ["Anna $x^ <b> & buys \x1b \ufffe 说 milk"])
    svg = picture(maps, "svg")
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    # Labels are drawn as shapes, with their text in a comment.
    assert all(
        token.label in svg.decode() for token in maps.sentences[0].tgt.tokens if token.word is not None
    )
    assert svg == picture(maps, "svg")
