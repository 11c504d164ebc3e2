"""Images for TensorBoard of what each decoder layer attends to in two fixed validation pairs."""

import contextlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from mt.display import visible
from mt.inference.attention import SentenceAttention, sentence_attention
from mt.inference.labels import Token
from mt.inference.model_translator import ModelTranslator

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Pixels = npt.NDArray[np.uint8]

_NUM_PAIRS = 2
_NUM_ROWS_SEARCHED = 500
# Long enough to have a word order, short enough to look at.
_FEWEST_TOKENS, _MOST_TOKENS = 4, 30

_CELL, _GAP = 18, 24
_POINTS, _LONGEST_LABEL = 13, 16
# Searched for in the system's font folders.
_FONTS = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "Arial Unicode.ttf", "arial.ttf")
_PAPER, _INK, _EDGE = (255, 255, 255), (27, 31, 36), (208, 215, 222)
# From a weight of 0 to 1: one hue that gets darker, as on the page of `mt.attention_maps`.
_SHADES = np.array(
    [(255, 255, 255), (222, 235, 247), (158, 202, 225), (66, 146, 198), (8, 81, 156), (6, 32, 76)]
)


def attention_images(translator: ModelTranslator, rows: Sequence[Mapping[str, Any]]) -> list[Pixels]:
    """Draw the cross-attention over the first validation pairs of a suitable length.

    The reference is forced, so that rows and columns are the same in every validation.

    Args:
        translator: The model, in evaluation mode, with its tokenizers.
        rows: The validation split, with the columns ``src`` and ``tgt``.

    Returns:
        For each pair, an image ``(height, width, 3)`` with a map for each layer, averaged over its heads.
        There are fewer than two if the split has no more such pairs.
    """
    encode = (translator.src_tokenizer.encode, translator.tgt_tokenizer.encode)
    suitable = (
        (row["src"], row["tgt"])
        for row in islice(rows, _NUM_ROWS_SEARCHED)
        if all(
            _FEWEST_TOKENS <= len(ids) <= min(_MOST_TOKENS, translator.max_length - 1)
            for ids in (encode[0](row["src"]), encode[1](row["tgt"]))
        )
    )
    pairs = list(islice(suitable, _NUM_PAIRS))
    if not pairs:
        return []
    recorded = sentence_attention(translator, [src for src, _ in pairs], [tgt for _, tgt in pairs])
    return [_drawn(sentence) for sentence in recorded]


def _drawn(sentence: SentenceAttention) -> Pixels:
    font, spell = _font()
    rows, columns = _labels(sentence.tgt_tokens, spell), _labels(sentence.src_tokens, spell)
    left, top = (10 + max(round(font.getlength(label)) for label in side) for side in (rows, columns))
    top += 20
    maps = [_shaded(weights.numpy()) for weights in sentence.cross.mean(1)]
    height, width, _ = maps[0].shape
    image = Image.new("RGB", (left + len(maps) * (width + _GAP), top + height + _GAP // 2), _PAPER)
    draw = ImageDraw.Draw(image)
    for place, label in enumerate(rows):
        draw.text((left - 5, top + (place + 0.5) * _CELL), label, _INK, font, anchor="rm")
    for number, pixels in enumerate(maps):
        start = left + number * (width + _GAP)
        draw.text((start, 3), f"layer {number + 1}, mean of the heads", _INK, font)
        for place, label in enumerate(columns):
            upright = _upright(label, font)
            image.paste(upright, (start + place * _CELL, top - 4 - upright.height))
        image.paste(Image.fromarray(pixels), (start, top))
        draw.rectangle((start - 1, top - 1, start + width, top + height), outline=_EDGE)
    return np.asarray(image)


def _font() -> tuple[Font, Callable[[str], str]]:
    """A font for the labels, and a function that spells a label so that the font has its characters."""
    matplotlib = find_spec("matplotlib")
    ours = [
        Path(each) / "mpl-data/fonts/ttf" for each in getattr(matplotlib, "submodule_search_locations", ())
    ]
    for file in (*(str(folder / _FONTS[0]) for folder in ours), *_FONTS):
        with contextlib.suppress(OSError):
            return ImageFont.truetype(file, _POINTS), str
    # The font that comes with Pillow only has ASCII.
    return ImageFont.load_default(_POINTS), _in_ascii


def _in_ascii(text: str) -> str:
    """``text`` without accents, and with a question mark for every other non-ASCII character."""
    bare = "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))
    return bare.encode("ascii", "replace").decode()


def _labels(tokens: Sequence[Token], spell: Callable[[str], str]) -> list[str]:
    shown = [spell(visible(token.label).replace("\n", " ")) for token in tokens]
    return [label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 2] + ".." for label in shown]


def _shaded(weights: npt.NDArray[np.float32]) -> Pixels:
    """``(T, S)`` weights as cells of pixels; the square root makes small weights visible."""
    places = np.sqrt(weights.clip(0, 1)) * (len(_SHADES) - 1)
    channels = [np.interp(places, range(len(_SHADES)), _SHADES[:, channel]) for channel in range(3)]
    cells = np.stack(channels, -1).astype(np.uint8)
    return cells.repeat(_CELL, 0).repeat(_CELL, 1)


def _upright(label: str, font: Font) -> Image.Image:
    """A label as wide as a cell, to be read from bottom to top."""
    length = round(font.getlength(label)) + 2
    flat = Image.new("RGB", (length, _CELL), _PAPER)
    ImageDraw.Draw(flat).text((0, _CELL / 2), label, _INK, font, anchor="lm")
    return flat.rotate(90, expand=True)
