"""Which sentence pairs form a batch, and the order of batches: pure functions of their arguments.

All lengths include EOS, as `EncodedSentences.lengths` do. A batch is an array of indices.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer]
Indices = npt.NDArray[np.int32]
Batches = list[Indices]


class Share(NamedTuple):
    """A run of consecutive training pairs that come from one source."""

    num_pairs: int
    weight: float
    """How often each pair occurs in an epoch on average; a fraction is drawn again for each epoch."""
    tgt: str = ""
    """The language of its targets."""
    tag: str | None = None
    """What its sources begin with besides."""


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
    order = _epoch_pairs(len(src_lengths), shares, generator)
    generator.shuffle(order)
    batches = _batches_of_like_length(order, src_lengths, tgt_lengths, batch_tokens)
    return [batches[number] for number in generator.permutation(len(batches))]


def ordered_batches(src_lengths: Integers, tgt_lengths: Integers, *, batch_tokens: int) -> Batches:
    """Batches as `epoch_batches` forms them, but without randomness, from short to long: for validation."""
    order = np.arange(len(src_lengths), dtype=np.int32)
    return _batches_of_like_length(order, src_lengths, tgt_lengths, batch_tokens)


def _epoch_pairs(num_pairs: int, shares: Sequence[Share], generator: np.random.Generator) -> Indices:
    """The pairs of an epoch; depending on its weight, a pair occurs several times or not at all."""
    if all(share.weight == 1 for share in shares):
        return np.arange(num_pairs, dtype=np.int32)
    parts = []
    start = 0
    for share in shares:
        pairs = np.arange(start, start + share.num_pairs, dtype=np.int32)
        start += share.num_pairs
        times, rest = divmod(share.weight, 1)
        parts += [pairs] * int(times) + [generator.permutation(pairs)[: round(rest * len(pairs))]]
    return np.concatenate(parts)


def _batches_of_like_length(
    order: Indices, src_lengths: Integers, tgt_lengths: Integers, batch_tokens: int
) -> Batches:
    """``order`` sorted by target length, then by source length, cut into the longest batches that fit."""
    # Source lengths rise and fall alternately, so that no long source is followed by a short one.
    src = src_lengths[order]
    keys = tgt_lengths[order].astype(np.int64)
    np.negative(src, out=src, where=keys % 2 == 0)
    keys *= 2 * int(src_lengths.max(initial=0)) + 1
    keys += src
    pairs = order[np.argsort(keys, kind="stable")]
    lengths = np.maximum(src_lengths[pairs], tgt_lengths[pairs])
    batches = []
    start = 0
    while start < len(pairs):
        most_rows = max(1, batch_tokens // int(lengths[start]))
        longest = np.maximum.accumulate(lengths[start : start + most_rows])
        fitting = int(np.count_nonzero(longest * np.arange(1, len(longest) + 1) <= batch_tokens))
        end = start + max(1, fitting)
        batches.append(pairs[start:end])
        start = end
    return batches
