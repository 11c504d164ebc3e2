"""An image for TensorBoard of what the decoder attends to in one validation pair."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from mt.display import visible
from mt.inference.model_translator import ModelTranslator

Pixels = npt.NDArray[np.uint8]
_CELL, _MARGIN, _LONGEST_LABEL = 18, 120, 16


def _font() -> tuple[Any, str]:
    """DejaVu Sans, of the system or of matplotlib, with its encoding; Pillow's own font has only ASCII."""
    matplotlib = find_spec("matplotlib")
    fonts = Path(matplotlib.origin or "").parent / "mpl-data/fonts/ttf" if matplotlib else Path()
    for file in (Path("DejaVuSans.ttf"), fonts / "DejaVuSans.ttf"):
        with suppress(OSError):
            return ImageFont.truetype(file, 13), "utf-8"
    return ImageFont.load_default(13), "ascii"


def attention_image(translator: ModelTranslator, rows: Sequence[Mapping[str, Any]]) -> Pixels | None:
    """Draw the cross-attention, the mean of all heads, over the first suitable pair of ``rows``."""
    suitable = range(4, min(31, translator.facts.max_length))
    encoders = {"src": translator.src_tokenizer.encode, "tgt": translator.tgt_tokenizer.encode}
    for row in islice(rows, 500):
        if all(len(encode(row[side])) in suitable for side, encode in encoders.items()):
            [sentence] = translator.attention([row["src"]], [row["tgt"]])
            break
    else:
        return None
    shades = 255 * (1 - sentence.cross.mean((0, 1)).clamp(0, 1).sqrt())
    cells = Image.fromarray(shades.byte().numpy().repeat(_CELL, 0).repeat(_CELL, 1))
    font, encoding = _font()
    columns = Image.new("L", (_MARGIN, cells.width), 255)
    labelled = Image.new("L", (_MARGIN + cells.width, _MARGIN + cells.height), 255)
    sides = (labelled, sentence.tgt.tokens, _MARGIN), (columns, sentence.src.tokens[::-1], 0)
    for image, tokens, top in sides:
        for number, token in enumerate(tokens):
            label = visible(token.label).encode(encoding, "replace").decode(encoding)[:_LONGEST_LABEL]
            place = (_MARGIN - 5, top + (number + 0.5) * _CELL)
            ImageDraw.Draw(image).text(place, label.replace("\n", " "), 0, font, anchor="rm")
    labelled.paste(columns.rotate(-90, expand=True), (_MARGIN, 0))
    labelled.paste(cells, (_MARGIN, _MARGIN))
    return np.asarray(labelled)[..., None]
