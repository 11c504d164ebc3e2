"""Pictures and text formats, read by other programs."""

import json
from dataclasses import replace
from importlib.util import find_spec
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from mt.attention_maps.alignment import AttentionMaps, attention_maps
from mt.attention_maps.text_formats import as_json, as_pharaoh
from mt.errors import ConfigError
from mt.inference.alignment_layer import AlignmentLayer
from mt.inference.model_translator import ModelTranslator


def test_json_has_the_recorded_weights_whose_rows_sum_to_one(maps: AttentionMaps) -> None:
    data = json.loads("".join(as_json(maps.layer, maps.sentences)))
    assert data["alignment_layer"] == maps.layer.index + 1
    for read, sentence in zip(data["sentences"], maps.sentences, strict=True):
        assert (read["line"], read["source"], read["target"]) == (
            sentence.line, sentence.source, sentence.target,
        )  # fmt: skip
        assert read["src_tokens"] == [token.label for token in sentence.src_tokens]
        for name in ("encoder_self", "decoder_self", "cross"):
            weights = torch.tensor(read[name])
            torch.testing.assert_close(weights, getattr(sentence, name), atol=1e-7, rtol=0)
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=0)


def test_pharaoh_has_a_line_for_each_line(translator: ModelTranslator) -> None:
    maps = attention_maps(translator, ["Anna buys milk.", "", "the dog sees milk."])
    lines = "".join(as_pharaoh(maps.layer, maps.sentences)).split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    for line, sentence in ((lines[0], maps.sentences[0]), (lines[2], maps.sentences[2])):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert links == sorted(links)
        # Each target word has one source word, by the spaces of both sentences.
        assert sorted(j for _, j in links) == list(range(len(sentence.target.split())))
        assert all(i < len(sentence.source.split()) for i, _ in links)


pictures = pytest.mark.skipif(find_spec("matplotlib") is None, reason="there is no matplotlib")


@pictures
def test_a_picture_is_one_whatever_the_text_and_always_the_same(translator: ModelTranslator) -> None:
    from mt.attention_maps.picture import picture

    maps = attention_maps(translator, ["Anna $x^ <b> & buys \x1b \ufffe 说 milk"])
    svg = picture(maps, "cross", "mean", layer=None, format="svg")
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert svg == picture(maps, "cross", "mean", layer=None, format="svg")
    with Image.open(BytesIO(picture(maps, "cross", "mean", layer=None, format="png"))) as png:
        assert png.format == "PNG"
        assert min(png.size) > 300


@pictures
def test_more_heads_make_a_larger_picture_and_each_head_another(maps: AttentionMaps) -> None:
    from mt.attention_maps.picture import Heads, Kind, picture

    def drawn(kind: Kind, heads: Heads) -> bytes:
        return picture(maps, kind, heads, layer=0, format="png")

    def width(png: bytes) -> int:
        with Image.open(BytesIO(png)) as image:
            return image.width

    assert width(drawn("encoder", "all")) > width(drawn("encoder", "mean"))
    every = {drawn("cross", heads) for heads in (0, 1, "mean")} | {drawn("encoder", 0), drawn("decoder", 0)}
    assert len(every) == 5


@pictures
def test_a_picture_has_the_weights_of_its_layer_with_their_tokens_on_both_axes(
    maps: AttentionMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mt.attention_maps import picture

    def in_two_layers(weights: torch.Tensor) -> torch.Tensor:
        return torch.cat([weights, weights / 2])

    drawn: list[Any] = []
    monkeypatch.setattr(picture, "_saved", lambda figure, format: drawn.append(figure))
    one = maps.sentences[1]
    sentence = replace(
        one,
        cross=in_two_layers(one.cross),
        encoder_self=in_two_layers(one.encoder_self),
        decoder_self=in_two_layers(one.decoder_self),
    )
    shown = AttentionMaps([sentence], AlignmentLayer(0, None))
    src, tgt, read = (
        [token.label for token in tokens]
        for tokens in (sentence.src_tokens, sentence.tgt_tokens, sentence.tgt_inputs)
    )
    # By default the layer that aligns, and the last one of self-attention.
    picture.picture(shown, "cross", "mean", layer=None, format="svg")
    picture.picture(shown, "cross", 1, layer=1, format="svg")
    picture.picture(shown, "encoder", "mean", layer=None, format="svg")
    picture.picture(shown, "decoder", 0, layer=0, format="svg")
    expected = [
        (sentence.cross[0].mean(0), tgt, src),
        (sentence.cross[1, 1], tgt, src),
        (sentence.encoder_self[1].mean(0), src, src),
        (sentence.decoder_self[0, 0], tgt, read),
    ]
    for figure, (weights, rows, columns) in zip(drawn, expected, strict=True):
        axes = figure.axes[0]
        [image] = axes.images
        assert np.array_equal(np.asarray(image.get_array()), weights.numpy())
        assert [text.get_text() for text in axes.get_yticklabels()] == rows
        assert [text.get_text() for text in axes.get_xticklabels()] == columns


@pictures
def test_a_picture_of_long_sentences_has_smaller_cells(
    maps: AttentionMaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mt.attention_maps import picture

    monkeypatch.setattr(picture, "_MOST_DOTS", 20_000)
    with Image.open(BytesIO(picture.picture(maps, "cross", "all", layer=None, format="png"))) as png:
        assert 15_000 < png.width * png.height <= 20_000


@pictures
def test_a_layer_or_head_that_is_not_there_is_named(maps: AttentionMaps) -> None:
    from mt.attention_maps.picture import picture

    with pytest.raises(ConfigError, match=r"no head 3 .* has 2"):
        picture(maps, "cross", 2, layer=None, format="svg")
    with pytest.raises(ConfigError, match=r"no layer 2 .* has 1"):
        picture(maps, "encoder", "mean", layer=1, format="svg")
