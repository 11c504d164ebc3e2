"""The vocabularies and ids of a large corpus, cached because they take long to compute."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from mt.config.config import Config
from mt.data.batches.alignment import ALIGNMENT_VERSION, Places, align
from mt.data.batches.dataset import ENCODING_VERSION, DropCounts, encode_pairs, load_pairs, mapped
from mt.data.batches.pairs import EncodedPairs
from mt.data.cache import cached, recipe
from mt.data.corpus import Corpus
from mt.data.pair_table import PAIRS_IN_MEMORY
from mt.data.text_form import TextForm
from mt.data.tokenizers.tokenizer import TOKENIZER_VERSION, Tokenizer
from mt.display import track

Tokenizers = tuple[Tokenizer, Tokenizer]

# Fewer pairs are aligned in a few seconds.
_WORTH_KEEPING = 20_000
_FILE = "places"


def cached_tokenizers(corpus: Corpus, config: Config, make: Callable[[], Tokenizers]) -> Tokenizers:
    """The tokenizers of this training text, which ``make`` trains; those of a large corpus are cached."""
    # A file or Hub id may name another tokenizer tomorrow, and loads quickly.
    if config.tokenizer.kind == "file" or config.init_from.run or len(corpus.train) <= PAIRS_IN_MEMORY:
        return make()

    def fill(folder: Path) -> None:
        for tokenizer, name in zip(make(), ("src.json", "tgt.json"), strict=True):
            tokenizer.save(folder / name)

    # A limit that is not reached has no effect.
    irrelevant: set[str] = set() if len(corpus.train) > config.tokenizer.max_lines else {"max_lines"}
    key = {
        "what": "tokenizers",
        "recipe": recipe(TOKENIZER_VERSION, "tokenizers"),
        **_text(corpus),
        "config": config.tokenizer.model_dump(mode="json", exclude=irrelevant),
        "languages": [config.data.src, config.data.tgt] if config.tokenizer.lowercase else [],
        "max_length": config.data.max_length,
        "form": TextForm.of(config.cleaning),
    }
    return cached(
        key,
        fill,
        lambda folder: (Tokenizer.load(folder / "src.json"), Tokenizer.load(folder / "tgt.json")),
        make,
    )


def encoded_training_pairs(
    corpus: Corpus, tokenizers: Tokenizers, *, max_length: int
) -> tuple[EncodedPairs, DropCounts]:
    """The result of `encode_pairs` for the training pairs; the ids of a large corpus are cached in files."""

    def encode(folder: Path | None = None) -> tuple[EncodedPairs, DropCounts]:
        return encode_pairs(
            corpus.train, *tokenizers, max_length=max_length, shares=corpus.shares, folder=folder
        )

    if len(corpus.train) <= PAIRS_IN_MEMORY:
        return encode()
    key = {
        "what": "ids",
        "recipe": recipe(ENCODING_VERSION, "tokenizers"),
        **_text(corpus),
        "shares": corpus.shares,
        "tokenizers": [hashlib.sha256(tokenizer.to_json().encode()).hexdigest() for tokenizer in tokenizers],
        "max_length": max_length,
    }
    return cached(key, encode, load_pairs, encode)


def _text(corpus: Corpus) -> dict[str, object]:
    """The part of a key that describes the training text."""
    return {
        "text": corpus.report.splits.train.fingerprint,
        "pairs": len(corpus.train),
    }


def aligned_places(pairs: EncodedPairs) -> Places:
    """The source position of each target token, or -1, in the layout of ``pairs.tgt.ids``."""

    def blocks() -> Iterable[Places]:
        return track(align(pairs), "aligning", unit="words", total=len(pairs.tgt.ids), size=len)

    def make() -> Places:
        return np.concatenate(list(blocks()))

    def fill(folder: Path) -> None:
        with (folder / _FILE).open("wb") as file:
            for places in blocks():
                file.write(places.tobytes())

    def load(folder: Path) -> Places:
        return mapped(folder / _FILE, np.int16)

    if len(pairs) < _WORTH_KEEPING:
        return make()
    return cached(
        {"what": "alignment", "ids": _digest(pairs), "recipe": recipe(ALIGNMENT_VERSION, "numpy")},
        fill,
        load,
        make,
    )


def _digest(pairs: EncodedPairs) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for side in (pairs.src, pairs.tgt):
        for array in (side.ids, side.offsets):
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
