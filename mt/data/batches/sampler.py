"""Which sentence pairs form a batch, and the order of batches: pure functions of their arguments.

All lengths include EOS, as `EncodedSentences.lengths` do. A batch is an array of indices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer]
Indices = npt.NDArray[np.int32]


class Share(NamedTuple):
    """A run of consecutive training pairs that come from one source."""

    num_pairs: int
    weight: float
    """How often each pair occurs in an epoch on average; a fraction is drawn again for each epoch."""


@dataclass(frozen=True)
class Batches:
    """Batches in order, as three arrays instead of many small ones."""

    pairs: Indices
    """The indices of all batches, concatenated from short to long."""
    ends: npt.NDArray[np.int64]
    """Where in ``pairs`` each batch ends."""
    order: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, number: int) -> Indices:
        batch = self.order[number]
        return self.pairs[self.ends[batch - 1] if batch else 0 : self.ends[batch]]

    def __iter__(self) -> Iterator[Indices]:
        return (self[number] for number in range(len(self)))


def epoch_batches(
    src_lengths: Integers,
    tgt_lengths: Integers,
    *,
    batch_tokens: int,
    seed: int,
    epoch: int,
    shares: Sequence[Share] = (),
) -> Batches:
    """Batches of one pass over the corpus: every pair once, similar lengths together, in random order.

    It depends on ``(seed, epoch)`` alone, so that a position in the training data is two integers: the epoch
    and the number of batches done. The rows of a batch times its longest sentence, of either side, are at
    most ``batch_tokens``; a longer pair becomes a batch of its own.
    """
    generator = np.random.default_rng([seed, epoch])
    order = _shown(len(src_lengths), shares, generator)
    generator.shuffle(order)
    pairs, ends = _batches_of_like_length(order, src_lengths, tgt_lengths, batch_tokens)
    return Batches(pairs, ends, generator.permutation(len(ends)))


def ordered_batches(src_lengths: Integers, tgt_lengths: Integers, *, batch_tokens: int) -> Batches:
    """Batches as `epoch_batches` forms them, but without randomness, from short to long: for validation."""
    order = np.arange(len(src_lengths), dtype=np.int32)
    pairs, ends = _batches_of_like_length(order, src_lengths, tgt_lengths, batch_tokens)
    return Batches(pairs, ends, np.arange(len(ends)))


def _shown(num_pairs: int, shares: Sequence[Share], generator: np.random.Generator) -> Indices:
    """The pairs of an epoch; depending on its weight, a pair occurs several times or not at all."""
    if all(share.weight == 1 for share in shares):
        return np.arange(num_pairs, dtype=np.int32)
    shown = []
    start = 0
    for share in shares:
        pairs = np.arange(start, start + share.num_pairs, dtype=np.int32)
        start += share.num_pairs
        times, rest = divmod(share.weight, 1)
        shown += [pairs] * int(times) + [generator.permutation(pairs)[: round(rest * len(pairs))]]
    return np.concatenate(shown)


def _batches_of_like_length(
    order: Indices, src_lengths: Integers, tgt_lengths: Integers, batch_tokens: int
) -> tuple[Indices, npt.NDArray[np.int64]]:
    """``order`` sorted by target length, then by source length, and where to cut it."""
    # Source lengths rise and fall alternately, so that no long source is followed by a short one.
    src, keys = src_lengths[order], tgt_lengths[order].astype(np.int64)
    np.negative(src, out=src, where=keys % 2 == 0)
    keys *= 2 * int(src_lengths.max(initial=0)) + 1
    keys += src
    pairs = order[np.argsort(keys, kind="stable")]
    return pairs, _cuts(np.maximum(src_lengths[pairs], tgt_lengths[pairs]), batch_tokens)


def _cuts(lengths: Integers, batch_tokens: int) -> npt.NDArray[np.int64]:
    """Ends of the longest runs whose number of rows times longest length fits into ``batch_tokens``."""
    ends = []
    start = 0
    while start < len(lengths):
        most_rows = max(1, batch_tokens // int(lengths[start]))
        longest = np.maximum.accumulate(lengths[start : start + most_rows])
        fitting = int(np.count_nonzero(longest * np.arange(1, len(longest) + 1) <= batch_tokens))
        start += max(1, fitting)
        ends.append(start)
    return np.array(ends, dtype=np.int64)
