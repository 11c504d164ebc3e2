"""Attention as a page: one HTML file that opens from disk, with neither network nor build step.

The drawing code is in `page.js`, and in `words.js` what `mt serve` draws too; the style is in `page.css`. All
text of the user is data: it is embedded as JSON and put into the page as text nodes, never as markup.
"""

import base64
import hashlib
import html
import json
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from mt.attention_maps.alignment import AttentionMaps
from mt.display import visible
from mt.errors import DataError
from mt.inference.labels import Token
from mt.inference.model_translator import SentenceAttention

LOG = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent
_SCRIPT = (_FOLDER.parent / "words.js").read_text("utf-8") + (_FOLDER / "page.js").read_text("utf-8")
_STYLE = (_FOLDER / "page.css").read_text(encoding="utf-8")

# Weights are embedded as 16 bits: exact to 0.00001, in a quarter of the space of decimal numbers.
_STEPS = 2**16 - 1

MOST_SENTENCES = 100
"""The most sentences on a page; one of 40 tokens, with 6 layers of 8 heads, takes 0.7 MB."""


def attention_html(maps: AttentionMaps) -> str:
    """The maps as a fragment to embed in a page: style, data and script, without a heading.

    Sentences without text are left out. A page that restricts its scripts must allow `script_hash`.
    """
    return (
        '<section class="mt-attention">'
        f"<style>{_STYLE}</style>"
        f'<script type="application/json">{_data(maps)}</script>'
        "<noscript>JavaScript is switched off, but is needed to draw the attention maps.</noscript>"
        f"<script>{_SCRIPT}</script>"
        "</section>"
    )


def script_hash() -> str:
    """The script's hash for a Content-Security-Policy, such as ``'sha256-...'``."""
    digest = hashlib.sha256(_SCRIPT.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def attention_page(maps: AttentionMaps, model_name: str) -> str:
    """At most `MOST_SENTENCES` maps as a complete page with the name of the model."""
    name = html.escape(visible(model_name))
    # Nothing is loaded from anywhere, and no script runs except ours, whatever the text contains.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {script_hash()}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Attention of {name}</title>
<style>
body {{ margin: 0 auto; max-width: 78rem; padding: 1rem clamp(0.75rem, 2.5vw, 2rem) 3rem; }}
h1 {{ font: 600 1.35rem/1.3 system-ui, sans-serif; margin: 0 0 0.75rem; }}
h1 small {{ font-weight: 400; font-size: 0.95rem; opacity: 0.75; overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>What the model attends to <small>{name}</small></h1>
{attention_html(maps)}
</body>
</html>
"""


def _data(maps: AttentionMaps) -> str:
    """The data that the script draws, as JSON that is safe between tags."""
    data = {
        "layer": maps.heads.layer,
        "heads": maps.heads.num_heads,
        "sentences": [_sentence(each) for each in maps.sentences if _has_text(each)],
    }
    # "</script>" and "<!--" would end or change the element that contains it.
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _has_text(sentence: SentenceAttention) -> bool:
    return bool(sentence.src.ids and sentence.tgt.ids)


def check_shows_something(maps: AttentionMaps) -> None:
    """Check that there is a sentence to draw, and warn about sentences that a page leaves out."""
    left_out = [str(each.line) for each in maps.sentences if not _has_text(each)]
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
