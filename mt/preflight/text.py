"""What a corpus is like as a model will see it: unknown words and lengths."""

from collections.abc import Iterator, Sequence
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
from mt.data.corpus import EVALUATION_SPLITS, Corpus, evenly_spaced, sets_of_sources
from mt.data.prepare import check_lengths, make_tokenizers
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.unsegmented_scripts import split_letters
from mt.display import counted
from mt.evaluation.analysis import words
from mt.sides import SIDES, Sides
from mt.special_tokens import UNK_ID

Numbers = npt.NDArray[np.integer]
# At most this many pairs are examined, spread evenly; all rows of the corpus are read and checked anyway.
MOST_TRAINING_PAIRS, MOST_EVALUATION_PAIRS = 300_000, 5_000
# So many pairs are enough to count words and letters; so many for lengths, and for the steps that are timed.
PAIRS_COUNTED, PAIRS_ENCODED = 2_000, 10_000
# At most this share of the training pairs should be dropped because they are long.
MOST_DROPPED = 0.05


@dataclass(frozen=True)
class ExaminedCorpus:
    """The examined part of a corpus, and the tokenizers of source and target."""

    train: datasets.Dataset
    evaluation: dict[str, datasets.Dataset]
    tokenizers: Sides[Tokenizer]
    shares: tuple[Share, ...]
    """The shares of the sources of a mix in the examined training pairs."""
    scale: float
    """The number of training pairs divided by those examined."""
    validation_scale: float
    """The number of validation pairs, of all sources, divided by those examined of the run's own."""

    @property
    def sides(self) -> list[tuple[str, str, Tokenizer]]:
        """The column, the name and the tokenizer of each side."""
        return [("src", "source", self.tokenizers.src), ("tgt", "target", self.tokenizers.tgt)]


class Unknown(NamedTuple):
    """Running words of a text that are not in the vocabulary."""

    num_unknown: int
    num_words: int

    @property
    def share(self) -> float:
        """The share of running words that are unknown, from 0 to 1."""
        return self.num_unknown / max(self.num_words, 1)


def examine(
    corpus: Corpus,
    config: Config,
    tokenizers: Sides[Tokenizer] | None = None,
    *,
    most: int = MOST_TRAINING_PAIRS,
) -> ExaminedCorpus:
    """Choose ``most`` training pairs to examine, and train the tokenizers unless they are given."""
    if tokenizers is None:
        tokenizers = make_tokenizers(evenly_spaced_pairs(corpus.train, MOST_TRAINING_PAIRS), config)
    held_out = {"validation": corpus.validation, "test": corpus.test}
    num_validation = len(corpus.validation)
    for name, (pairs, _) in sets_of_sources(config.data, "validation", config.cleaning, corpus).items():
        held_out[f"{name} validation"] = pairs
        num_validation += len(pairs)
    evaluation = {}
    for name, pairs in held_out.items():
        evaluation[name] = evenly_spaced_pairs(pairs, MOST_EVALUATION_PAIRS)
    rows = evenly_spaced(len(corpus.train), most)
    ends = np.cumsum([share.num_pairs for share in corpus.shares], dtype=np.int64)
    counts = np.diff(np.searchsorted(rows, ends), prepend=0).tolist()
    shares = [share._replace(num_pairs=n) for n, share in zip(counts, corpus.shares, strict=True)]
    return ExaminedCorpus(
        evenly_spaced_pairs(corpus.train, most),
        evaluation,
        tokenizers,
        tuple(shares),
        len(corpus.train) / len(rows),
        num_validation / len(evaluation["validation"]),
    )


def shown_directions(corpus: Corpus) -> list[tuple[str, str]]:
    """For each source its languages, and how many pairs are shown how often."""
    shown = []
    for source, share in zip(corpus.report.sources, corpus.shares, strict=True):
        pairs = f"{share.num_pairs:,} pairs with weight {share.weight:.3g}"
        shown.append((f"{source.src} to {source.tgt}", pairs))
    return shown


def unknown_words(text: ExaminedCorpus) -> dict[str, Unknown]:
    """The unknown words of each held-out text, by names such as "test targets"."""
    return {
        f"{split} {name}s": count_unknown(pairs[side], tokenizer)
        for split, pairs in text.evaluation.items()
        for side, name, tokenizer in text.sides
    }


def most_unknown(text: ExaminedCorpus) -> float:
    """The largest share of unknown words in a held-out text, from 0 to 1."""
    return max(words.share for words in unknown_words(text).values())


def encode(config: Config, text: ExaminedCorpus) -> tuple[EncodedPairs, dict[str, int]]:
    """The examined training pairs as a run encodes them, and how many of them are dropped for each reason."""
    max_length, validation = config.data.max_length, text.evaluation["validation"]
    pairs, dropped = encode_pairs(text.train, text.tokenizers, max_length=max_length, shares=text.shares)
    own = [Share(len(validation), 1.0, config.data.tgt)]
    encoded, _ = encode_pairs(validation, text.tokenizers, max_length=max_length, shares=own)
    check_lengths(pairs, dropped, encoded, config)
    return pairs, dropped


def lengths(text: ExaminedCorpus) -> Sides[Numbers]:
    """The tokens, with EOS, of sources and targets of a part of the training pairs."""
    pairs, _ = encode_pairs(evenly_spaced_pairs(text.train, PAIRS_ENCODED), text.tokenizers, max_length=None)
    return Sides(pairs.src.lengths, pairs.tgt.lengths)


def evenly_spaced_pairs(pairs: datasets.Dataset, most: int) -> datasets.Dataset:
    """All pairs, or ``most`` of them, at even distances."""
    return pairs if len(pairs) <= most else pairs.select(evenly_spaced(len(pairs), most))


def num_running_words(pairs: datasets.Dataset) -> float:
    """Words on an average side, or characters where a script is unsegmented; an estimate for many pairs."""
    sample = evenly_spaced_pairs(pairs, PAIRS_COUNTED)
    counts = np.zeros(len(sample))
    for side in SIDES:
        counts += [len(split_letters(text).split()) for text in sample[side]]
    counts /= 2
    # Of the longest lines, which will be dropped, only a part counts.
    return len(pairs) * float(np.minimum(counts, np.quantile(counts, 0.999, method="lower")).mean())


def count_unknown(texts: Sequence[str], tokenizer: Tokenizer) -> Unknown:
    """Count the words of ``texts`` that are UNK to the tokenizer."""
    ids = list(chain.from_iterable(tokenizer.encode_batch(texts)))
    return Unknown(ids.count(UNK_ID), len(ids))


def bleu_is_always_0(pairs: datasets.Dataset) -> bool:
    """Whether even the targets themselves score 0 BLEU, because none has four words."""
    return not any(len(words(text)) >= 4 for text in evenly_spaced_pairs(pairs, MOST_EVALUATION_PAIRS)["tgt"])


def warn_of_held_out_pairs(corpus: Corpus) -> Iterator[str]:
    """Splits that `mt evaluate` refuses for a missing target, or that training has seen."""
    for name in EVALUATION_SPLITS:
        pairs = corpus.by_name()[name]
        empty = [line for line, text in enumerate(pairs["tgt"], start=1) if not text.strip()]
        if empty:
            yield (
                f"the {name} split cannot be scored, because it has {counted(len(empty), 'empty target')}, "
                f"the first in pair {empty[0]}. Add a translation, or remove the pair."
            )
    if corpus.report.has_leaked:
        yield corpus.report.leak_sentence
