"""Markup that was left in a corpus: lines that are tags, and characters by their names in HTML."""

import re
from collections.abc import Iterator

from mt.data.corpus import Corpus
from mt.data.languages import sample_texts

_TAG = re.compile(r"\s*<[^<>]+>\s*")
_ENTITY = re.compile(r"&(?:amp|quot|apos|lt|gt|nbsp|#\d{2,5});")
MOST = 0.01
"""The share of lines above which markup is no accident."""


def markup_warnings(corpus: Corpus) -> Iterator[str]:
    """Splits of which more than `MOST` of the lines are tags, or have names of characters."""
    for split, pairs in corpus.by_name().items():
        texts = [text for side in sample_texts(pairs) for text in side]
        tags = [text for text in texts if _TAG.fullmatch(text)]
        entities = [match[0] for text in texts if (match := _ENTITY.search(text))]
        if len(tags) > MOST * len(texts):
            yield (
                f"{len(tags) / len(texts):.0%} of the lines of the {split} split are tags, such as "
                f"{tags[0].strip()}: take them out of both sides."
            )
        if len(entities) > MOST * len(texts):
            remedy = "set cleaning.unescape_html" if split == "train" else "write the characters themselves"
            yield (
                f"{len(entities) / len(texts):.0%} of the lines of the {split} split have HTML's names of "
                f"characters, such as {entities[0]}: {remedy}."
            )
