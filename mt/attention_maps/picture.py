"""Attention as a picture for a paper, drawn with matplotlib; importing this needs the extra ``pictures``."""

import io
import logging
import math
import warnings
from collections.abc import Sequence
from typing import Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from torch import Tensor

from mt.attention_maps.alignment import AttentionMaps
from mt.display import visible
from mt.errors import ConfigError
from mt.inference.attention import SentenceAttention
from mt.inference.labels import Token

LOG = logging.getLogger(__name__)

Kind = Literal["cross", "encoder", "decoder"]
Heads = int | Literal["mean", "all"]

# XML, and so SVG, cannot contain them, not even in the comments with the text of each label.
_NOT_IN_XML = {code: f"\\u{code:04x}" for code in (0xFFFE, 0xFFFF)}
# The size in inches of a cell, and of the margins around the cells.
_CELL, _MARGIN = 0.3, 1.6
_MAPS_IN_A_ROW = 4
_DOTS_PER_INCH = 200
# All heads of a long sentence would take gigabytes.
_MOST_DOTS = 50_000_000
# For scripts that matplotlib's own font does not support, if one of these is installed.
_MORE_FONTS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "PingFang SC", "MS Gothic", "Noto Sans Thai", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Sans Devanagari", "Arial Unicode MS",
)  # fmt: skip


def picture(
    maps: AttentionMaps, kind: Kind, heads: Heads, *, layer: int | None, format: Literal["png", "svg"]
) -> bytes:
    """Draw the attention of the first sentence in one layer; equal arguments give equal bytes.

    Heads and layers are counted from 0. Without a layer it is the one that aligns, or the last one of
    self-attention.
    """
    sentence = maps.sentences[0]
    weights = {"cross": sentence.cross, "encoder": sentence.encoder_self, "decoder": sentence.decoder_self}[
        kind
    ]
    if layer is None:
        layer = maps.layer.index if kind == "cross" else weights.size(0) - 1
    _check_exists("layer", layer, weights.size(0))
    chosen = weights[layer]
    if heads == "mean":
        shown = [("", chosen.mean(0))]
    elif heads == "all":
        shown = [(f"head {number}", each) for number, each in enumerate(chosen, start=1)]
    else:
        _check_exists("head", heads, chosen.size(0))
        shown = [("", chosen[heads])]
    installed = set(fontManager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in _MORE_FONTS if font in installed)]
    with matplotlib.rc_context({"font.family": fonts, "svg.hashsalt": "mt", "axes.linewidth": 0.6}):
        return _saved(_drawn(shown, *_labels(sentence, kind)), format)


def _check_exists(what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise ConfigError(
            f"there is no {what} {number + 1} in this attention: it has {count}, counted from 1."
        )


def _labels(sentence: SentenceAttention, kind: Kind) -> tuple[list[str], list[str]]:
    """The labels of the rows and of the columns."""

    def shown(tokens: Sequence[Token]) -> list[str]:
        return [visible(token.label).translate(_NOT_IN_XML) for token in tokens]

    rows = sentence.src_tokens if kind == "encoder" else sentence.tgt_tokens
    return shown(rows), shown(sentence.tgt_inputs if kind == "decoder" else sentence.src_tokens)


def _drawn(shown: Sequence[tuple[str, Tensor]], rows: Sequence[str], columns: Sequence[str]) -> Figure:
    across = min(len(shown), _MAPS_IN_A_ROW)
    down = -(-len(shown) // across)
    width, height = _CELL * len(columns), _CELL * len(rows)
    figure = Figure((across * width + _MARGIN, down * height + _MARGIN), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    for index, (axes, (title, weights)) in enumerate(zip(grid.flat, shown, strict=False)):
        # As on the page: one hue, and the square root, which shows small weights.
        image = axes.imshow(weights.numpy(), cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="equal")
        axes.set_xlabel(title)
        _label(axes, rows if index % across == 0 else [], columns if index < across else [])
    figure.colorbar(
        image, ax=list(grid.flat), label="weight", ticks=[0, 0.1, 0.25, 0.5, 1], shrink=0.8, pad=0.02
    )
    return figure


def _label(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="left", rotation_mode="anchor")
    axes.tick_params(length=0)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        # A dollar sign in a sentence is literal, not mathtext.
        text.set_parse_math(False)


def _saved(figure: Figure, format: Literal["png", "svg"]) -> bytes:
    file = io.BytesIO()
    width, height = figure.get_size_inches()
    dots = min(_DOTS_PER_INCH, math.sqrt(_MOST_DOTS / (width * height)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(file, format=format, dpi=dots, metadata={"Date": None} if format == "svg" else None)
    if any("missing from" in str(warning.message) for warning in caught):
        LOG.warning(
            "no font on this machine has all characters of the labels: the picture shows boxes instead"
        )
    return file.getvalue()
