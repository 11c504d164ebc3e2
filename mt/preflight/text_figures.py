"""What a corpus and its tokenizers can be told from: unknown words, the ceiling, lengths, padding."""

from collections.abc import Sequence
from dataclasses import dataclass

import datasets
import numpy as np
import numpy.typing as npt

from mt.data.batches.dataset import EncodedPairs
from mt.data.batches.sampler import Indices
from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.evaluation.scores import Score, score_translations
from mt.special_tokens import UNK, UNK_ID

# A character for private use, which stands in no reference.
WRONG_WORD = "\uf8fe"


@dataclass(frozen=True)
class Unknown:
    """Words of a text that the vocabulary lacks: running words, and different ones."""

    num_tokens: int
    num_unknown_tokens: int
    num_types: int
    num_unknown_types: int

    @property
    def share(self) -> float:
        """Of the running words, from 0 to 1."""
        return self.num_unknown_tokens / max(self.num_tokens, 1)

    @property
    def share_of_types(self) -> float:
        """Of the different words, from 0 to 1."""
        return self.num_unknown_types / max(self.num_types, 1)


@dataclass(frozen=True)
class Ceiling:
    """What a model that makes no mistake would score, its words going through the tokenizer."""

    bleu: Score
    num_lines: int
    num_changed: int
    """Lines that the tokenizer does not give back as they were, but for their spacing."""


@dataclass(frozen=True)
class Lengths:
    """Of the sentences of one side, in tokens, the end mark counted."""

    mean: float
    most: int
    """95 % are as long as this or shorter."""
    longest: int


@dataclass(frozen=True)
class Padding:
    """Share of a side's positions in the training batches that hold no token, from 0 to 1."""

    src: float
    tgt: float


def spread(pairs: datasets.Dataset, most: int) -> datasets.Dataset:
    """All pairs, or ``most`` of them, spread evenly."""
    if len(pairs) <= most:
        return pairs
    return pairs.select([len(pairs) * number // most for number in range(most)])


def count_unknown(texts: Sequence[str], tokenizer: Tokenizer) -> Unknown:
    """Count the words of ``texts`` that are UNK to the tokenizer."""
    num_tokens = num_unknown = 0
    types: set[str] = set()
    unknown_types: set[str] = set()
    for text in texts:
        ids, words = tokenizer.encode_with_words(text)
        unknown = [word for token_id, word in zip(ids, words, strict=True) if token_id == UNK_ID]
        num_tokens += len(ids)
        num_unknown += len(unknown)
        types.update(words)
        unknown_types.update(unknown)
    return Unknown(num_tokens, num_unknown, len(types), len(unknown_types))


def find_ceiling(references: Sequence[str], tokenizer: Tokenizer) -> Ceiling:
    """Encode and decode the references, and score them against themselves.

    An unknown word counts as one wrong word, as the model, which never writes UNK, would put one there.
    """
    decoded = []
    num_changed = 0
    for reference, ids in zip(references, tokenizer.encode_batch(references), strict=True):
        text = tokenizer.decode(ids)
        num_changed += normalise_spacing(text) != normalise_spacing(reference)
        # sacreBLEU would split <unk> into three.
        decoded.append(text.replace(UNK, WRONG_WORD) if UNK_ID in ids else text)
    return Ceiling(score_translations(decoded, references)["bleu"], len(references), num_changed)


def describe_lengths(lengths: npt.NDArray[np.integer]) -> Lengths:
    """Mean, 95th percentile and maximum of at least one length."""
    most = int(np.quantile(lengths, 0.95, method="inverted_cdf"))
    return Lengths(float(lengths.mean()), most, int(lengths.max()))


def measure_padding(pairs: EncodedPairs, batches: Sequence[Indices]) -> Padding:
    """How much of the rectangles that `collate` makes of these batches is padding."""

    def waste(lengths: npt.NDArray[np.integer]) -> float:
        positions = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
        tokens = sum(int(lengths[batch].sum()) for batch in batches)
        return 1 - tokens / positions

    return Padding(waste(pairs.src.lengths), waste(pairs.tgt.lengths))
