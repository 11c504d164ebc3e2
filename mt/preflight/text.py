"""What a corpus is like as a model will see it: unknown words and lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import datasets
import numpy as np
import numpy.typing as npt

from mt.config.config import Config
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.pairs import EncodedPairs
from mt.data.batches.sampler import Share
from mt.data.corpus import Corpus
from mt.data.prepare import check_lengths, make_tokenizers
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.unsegmented_scripts import split_letters
from mt.evaluation.analysis import words
from mt.special_tokens import UNK_ID

Numbers = npt.NDArray[np.integer]
# At most this many pairs are examined, spread evenly; all rows of the corpus are read and checked anyway.
MOST_TRAINING_PAIRS, MOST_EVALUATION_PAIRS = 300_000, 5_000
# So many pairs are enough to count words and letters; so many for lengths, and for the steps that are timed.
PAIRS_COUNTED, PAIRS_ENCODED = 2_000, 10_000


@dataclass(frozen=True)
class Text:
    """The examined part of a corpus, and the tokenizers of source and target."""

    train: datasets.Dataset
    evaluation: dict[str, datasets.Dataset]
    tokenizers: tuple[Tokenizer, Tokenizer]
    shares: tuple[Share, ...]
    """The shares of the sources of a mix in the examined training pairs."""
    scale: float
    """The number of training pairs divided by those examined."""
    validation_scale: float
    """Likewise for validation."""

    @property
    def sides(self) -> list[tuple[str, str, Tokenizer]]:
        """The column, the name and the tokenizer of each side."""
        return [("src", "source", self.tokenizers[0]), ("tgt", "target", self.tokenizers[1])]


class Unknown(NamedTuple):
    """Running words of a text that are not in the vocabulary."""

    num_unknown: int
    num_words: int

    @property
    def share(self) -> float:
        """The share of running words that are unknown, from 0 to 1."""
        return self.num_unknown / max(self.num_words, 1)


def look_at(
    corpus: Corpus,
    config: Config,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    *,
    most: int = MOST_TRAINING_PAIRS,
) -> Text:
    """Choose ``most`` training pairs to examine, and train the tokenizers unless they are given."""
    if tokenizers is None:
        tokenizers = make_tokenizers(spread(corpus.train, MOST_TRAINING_PAIRS), config)
    train = spread(corpus.train, most)
    validation = spread(corpus.validation, MOST_EVALUATION_PAIRS)
    return Text(
        train,
        {"validation": validation, "test": spread(corpus.test, MOST_EVALUATION_PAIRS)},
        tokenizers,
        _shares_of_spread(corpus.shares, len(corpus.train), len(train)),
        len(corpus.train) / len(train),
        len(corpus.validation) / len(validation),
    )


def unknown_words(text: Text) -> dict[str, Unknown]:
    """The unknown words of each held-out text, by names such as "test targets"."""
    return {
        f"{split} {name}s": count_unknown(pairs[side], tokenizer)
        for split, pairs in text.evaluation.items()
        for side, name, tokenizer in text.sides
    }


def most_unknown(text: Text) -> float:
    """The largest share of unknown words in a held-out text, from 0 to 1."""
    return max(words.share for words in unknown_words(text).values())


def encode(config: Config, text: Text) -> tuple[EncodedPairs, dict[str, int]]:
    """The examined training pairs as a run encodes them, and how many of them are dropped for each reason."""
    max_length, validation = config.data.max_length, text.evaluation["validation"]
    pairs, dropped = encode_pairs(text.train, *text.tokenizers, max_length=max_length, shares=text.shares)
    encoded, _ = encode_pairs(validation, *text.tokenizers, max_length=max_length)
    check_lengths(pairs, dropped, encoded, config)
    return pairs, dropped


def lengths(text: Text) -> tuple[Numbers, Numbers]:
    """The tokens, with EOS, of sources and targets of a part of the training pairs."""
    pairs, _ = encode_pairs(spread(text.train, PAIRS_ENCODED), *text.tokenizers, max_length=None)
    return pairs.src.lengths, pairs.tgt.lengths


def spread(pairs: datasets.Dataset, most: int) -> datasets.Dataset:
    """All pairs, or ``most`` of them, spread evenly."""
    if len(pairs) <= most:
        return pairs
    return pairs.select(_spread_rows(len(pairs), most))


def _spread_rows(num_pairs: int, number: int) -> list[int]:
    return [num_pairs * row // number for row in range(number)]


def _shares_of_spread(shares: Sequence[Share], num_pairs: int, number: int) -> tuple[Share, ...]:
    """The shares of a mix among the ``number`` pairs that `spread` selects."""
    ends = np.cumsum([share.num_pairs for share in shares], dtype=np.int64)
    counts = np.diff(np.searchsorted(_spread_rows(num_pairs, number), ends), prepend=0)
    return tuple(Share(count, share.weight) for count, share in zip(counts.tolist(), shares, strict=True))


def num_running_words(pairs: datasets.Dataset) -> float:
    """Words on an average side, or characters where a script is unsegmented; an estimate for many pairs."""
    sample = spread(pairs, PAIRS_COUNTED)
    sides = [[len(split_letters(text).split()) for text in sample[side]] for side in ("src", "tgt")]
    counts = np.mean(sides, axis=0)
    # Of the longest lines, which will be dropped, only a part counts.
    return len(pairs) * float(np.minimum(counts, np.quantile(counts, 0.999, method="lower")).mean())


def count_unknown(texts: Sequence[str], tokenizer: Tokenizer) -> Unknown:
    """Count the words of ``texts`` that are UNK to the tokenizer."""
    ids = list(chain.from_iterable(tokenizer.encode_batch(texts)))
    return Unknown(ids.count(UNK_ID), len(ids))


def bleu_is_always_0(pairs: datasets.Dataset) -> bool:
    """Whether even the targets themselves score 0 BLEU, because none has four words."""
    return not any(len(words(text)) >= 4 for text in spread(pairs, MOST_EVALUATION_PAIRS)["tgt"])
