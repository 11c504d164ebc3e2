"""Attention as a page: one HTML file that opens from disk, with neither network nor build step.

The drawing code is in `page.js`, and in `words.js` what `mt serve` draws too; the style is in `page.css`. All
text of the user is data: it is embedded as JSON and put into the page as text nodes, never as markup.
"""

import base64
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader
from torch import Tensor

from mt.attention_maps.alignment import AttentionMaps
from mt.display import visible
from mt.errors import DataError
from mt.inference.labels import Token
from mt.inference.model_translator import SentenceAttention

LOG = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parents[1]
_TEMPLATES = Environment(loader=FileSystemLoader(_PACKAGE), autoescape=True, keep_trailing_newline=True)
_SCRIPT = "".join((_PACKAGE / file).read_text("utf-8") for file in ("words.js", "attention_maps/page.js"))

# Weights are embedded as 16 bits: exact to 0.00001, in a quarter of the space of decimal numbers.
_STEPS = 2**16 - 1

MOST_SENTENCES = 100
"""The most sentences on a page; one of 40 tokens, with 6 layers of 8 heads, takes 0.7 MB."""


def attention_html(maps: AttentionMaps) -> str:
    """The maps as a fragment to embed in a page: style, data and script, without a heading.

    Sentences without text are left out. A page that restricts its scripts must allow `script_hash`.
    """
    sentences = [_sentence(sentence) for sentence in maps.sentences if _has_text(sentence)]
    data = {"layer": maps.heads.layer, "heads": maps.heads.num_heads, "sentences": sentences}
    return _TEMPLATES.get_template("attention_maps/maps.html.j2").render(data=data, script=_SCRIPT)


def script_hash() -> str:
    """The script's hash for a Content-Security-Policy, such as ``'sha256-...'``."""
    digest = hashlib.sha256(_SCRIPT.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def attention_page(maps: AttentionMaps, model_name: str) -> str:
    """At most `MOST_SENTENCES` maps as a complete page with the name of the model."""
    # Nothing is loaded from anywhere, and no script runs except ours, whatever the text contains.
    return _TEMPLATES.get_template("attention_maps/page.html.j2").render(
        name=visible(model_name), script_hash=script_hash(), maps=attention_html(maps)
    )


def _has_text(sentence: SentenceAttention) -> bool:
    return bool(sentence.src.ids and sentence.tgt.ids)


def check_shows_something(maps: AttentionMaps) -> None:
    """Check that there is a sentence to draw, and warn about sentences that a page leaves out."""
    left_out = [str(sentence.line) for sentence in maps.sentences if not _has_text(sentence)]
    if len(left_out) == len(maps.sentences):
        raise DataError("there is nothing to show: the sentence or its translation has no words.")
    if left_out:
        LOG.warning("left out, because one side has no words: line %s", ", ".join(left_out))


def _sentence(sentence: SentenceAttention) -> dict[str, object]:
    return {
        "line": sentence.line,
        "source": visible(sentence.src.text),
        "target": visible(sentence.tgt.text),
        "src": _tokens(sentence.src.tokens),
        "tgt": _tokens(sentence.tgt.tokens),
        "maps": {
            "cross": _packed(sentence.cross),
            "encoder": _packed(sentence.encoder_self),
            "decoder": _packed(sentence.decoder_self),
        },
    }


def _tokens(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    """The label of each token, and its kind: text, unknown, or mark (EOS, a space)."""
    return [
        (visible(token.label), "unknown" if token.is_unknown else "mark" if token.word is None else "text")
        for token in tokens
    ]


def _packed(weights: Tensor) -> dict[str, object]:
    """``(L, H, Tq, Tk)`` weights as layers, heads and base64 of little-endian 16-bit numbers."""
    steps = np.rint(weights.numpy() * _STEPS).astype("<u2")
    return {
        "layers": weights.size(0),
        "heads": weights.size(1),
        "weights": base64.b64encode(steps.tobytes()).decode(),
    }
