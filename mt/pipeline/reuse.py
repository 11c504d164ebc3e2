"""What takes long to make of a large corpus and is made once: vocabularies and ids, kept in the cache."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mt.config.config import Config
from mt.data.cache import Cache, cache_folder, recipe
from mt.data.corpus import Corpus
from mt.data.dataset import ENCODING_VERSION, Dropped, EncodedPairs, encode_pairs, load_pairs
from mt.data.pair_table import PAIRS_IN_MEMORY
from mt.data.tokenizer import TOKENIZER_VERSION, Tokenizer

LOG = logging.getLogger(__name__)

Tokenizers = tuple[Tokenizer, Tokenizer]
T = TypeVar("T")


def reused_tokenizers(corpus: Corpus, config: Config, make: Callable[[], Tokenizers]) -> Tokenizers:
    """What ``make`` gives for this training text; that of a large corpus from the cache, if it is there.

    Args:
        corpus: What they are made from.
        config: How.
        make: Makes those of source and target.
    """
    # A file or a Hub id may mean another tokenizer tomorrow, and takes no time.
    if config.tokenizer.kind == "file" or len(corpus.train) <= PAIRS_IN_MEMORY:
        return make()

    def fill(folder: Path) -> None:
        for tokenizer, name in zip(make(), ("src.json", "tgt.json"), strict=True):
            tokenizer.save(folder / name)

    key = {
        "what": "tokenizers",
        "recipe": recipe(TOKENIZER_VERSION, "tokenizers"),
        **_text(corpus),
        "config": config.tokenizer.model_dump(mode="json"),
        "unicode_form": config.cleaning.unicode_form,
    }
    return made_once(
        key,
        fill,
        lambda folder: (Tokenizer.load(folder / "src.json"), Tokenizer.load(folder / "tgt.json")),
        make,
    )


def encoded_training_pairs(
    corpus: Corpus, tokenizers: Tokenizers, *, max_length: int
) -> tuple[EncodedPairs, Dropped]:
    """What `encode_pairs` gives for the training pairs; the ids of a large corpus stay in files.

    Args:
        corpus: Whose training pairs.
        tokenizers: Those of source and target.
        max_length: In tokens, the end mark counted.
    """

    def encode(folder: Path | None = None) -> tuple[EncodedPairs, Dropped]:
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
    return made_once(key, encode, load_pairs, encode)


def _text(corpus: Corpus) -> dict[str, object]:
    """What a key says of the training text."""
    return {
        "text": corpus.report.splits.train.fingerprint,
        "pairs": len(corpus.train),
    }


def made_once(
    key: object, fill: Callable[[Path], object], load: Callable[[Path], T], make: Callable[[], T]
) -> T:
    """Load the entry of ``key``, filled if need be; where none can be written, ``make`` it in memory."""
    cache = Cache(cache_folder())
    try:
        return load(cache.find(key) or cache.add(key, fill))
    except OSError as error:
        LOG.warning(
            "what was made will be made anew next time: %s cannot be written (%s)", cache_folder(), error
        )
        return make()
