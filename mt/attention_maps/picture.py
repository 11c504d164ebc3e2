"""Attention as a picture for a paper, drawn with matplotlib; importing this needs the extra ``pictures``."""

import io
import logging
import math
import warnings
from collections.abc import Sequence
from typing import Literal

import matplotlib
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from torch import Tensor

from mt.attention_maps.alignment import AttentionMaps
from mt.display import visible
from mt.inference.labels import Token

LOG = logging.getLogger(__name__)

# XML, and so SVG, cannot contain them, not even in the comments with the text of each label.
_NOT_IN_XML = {code: f"\\u{code:04x}" for code in (0xFFFE, 0xFFFF)}
# The size in inches of a cell, and of the margins around the cells.
_CELL, _MARGIN = 0.3, 1.6
_DOTS_PER_INCH = 200
# Larger pictures would take gigabytes.
_MOST_DOTS = 50_000_000
# For scripts that matplotlib's own font does not support, if one of these is installed.
_MORE_FONTS = (
    "Noto Sans CJK JP", "Noto Sans CJK SC", "PingFang SC", "MS Gothic", "Noto Sans Thai", "Noto Sans Arabic",
    "Noto Sans Hebrew", "Noto Sans Devanagari", "Arial Unicode MS",
)  # fmt: skip


def picture(maps: AttentionMaps, format: Literal["png", "svg"]) -> bytes:
    """Draw how the first sentence is aligned; equal arguments give equal bytes."""
    sentence = maps.sentences[0]
    installed = set(fontManager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in _MORE_FONTS if font in installed)]
    with matplotlib.rc_context({"font.family": fonts, "svg.hashsalt": "mt", "axes.linewidth": 0.6}):
        rows = _labels(sentence.tgt.tokens)
        columns = _labels(sentence.src.tokens)
        return _saved(_drawn(maps.heads.weights(sentence), rows, columns), format)


def _labels(tokens: Sequence[Token]) -> list[str]:
    return [visible(token.label).translate(_NOT_IN_XML) for token in tokens]


def _drawn(weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    width = _CELL * len(columns) + _MARGIN
    height = _CELL * len(rows) + _MARGIN
    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots()
    # As on the page: one hue, and the square root, which shows small weights.
    image = axes.imshow(weights.numpy(), cmap="Blues", norm=PowerNorm(0.5, 0, 1), aspect="equal")
    figure.colorbar(image, label="weight", ticks=[0, 0.1, 0.25, 0.5, 1], shrink=0.8, pad=0.02)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), columns, rotation=60, ha="left", rotation_mode="anchor")
    axes.tick_params(length=0)
    for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        # A dollar sign in a sentence is literal, not mathtext.
        text.set_parse_math(False)
    return figure


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
