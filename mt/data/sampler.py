"""Which sentence pairs make a batch, and in what order: pure functions of their arguments.

All lengths count one end mark, as `EncodedPairs.src_lengths` does. A batch is an array of indices.
"""

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer]
Indices = npt.NDArray[np.int64]


def epoch_batches(
    src_lengths: Integers, tgt_lengths: Integers, *, batch_tokens: int, seed: int, epoch: int
) -> list[Indices]:
    """Batches of one pass over the corpus: every pair once, pairs of like length together, in random order.

    Which pairs of one length meet, and the order of the batches, are drawn from ``(seed, epoch)`` alone, so
    that a position in the training data is two integers: the epoch and the number of batches done.

    Args:
        src_lengths: ``(N,)`` source lengths.
        tgt_lengths: ``(N,)`` target lengths.
        batch_tokens: The most that rows times the longest sentence of either side may be. A longer pair makes
            a batch of its own.
        seed: The run's seed.
        epoch: Passes over the corpus done before this one.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(src_lengths))
    batches = _batches_of_like_length(order, src_lengths, tgt_lengths, batch_tokens)
    return [batches[i] for i in generator.permutation(len(batches))]


def ordered_batches(src_lengths: Integers, tgt_lengths: Integers, *, batch_tokens: int) -> list[Indices]:
    """Batches as `epoch_batches` makes them, but always the same, from short to long: for validation."""
    return _batches_of_like_length(np.arange(len(src_lengths)), src_lengths, tgt_lengths, batch_tokens)


def sentence_batches(lengths: Integers, *, batch_sentences: int) -> list[Indices]:
    """Batches of at most ``batch_sentences`` sentences, from short to long: for translating."""
    order = np.argsort(lengths, kind="stable")
    return [order[i : i + batch_sentences] for i in range(0, len(order), batch_sentences)]


def _batches_of_like_length(
    order: Indices, src_lengths: Integers, tgt_lengths: Integers, batch_tokens: int
) -> list[Indices]:
    """Sort by target length and, within, by source length; equal pairs keep their places in ``order``."""
    src, tgt = src_lengths[order], tgt_lengths[order]
    # Source lengths rise and fall by turns, so that no long source is followed by a short one.
    order = order[np.lexsort((np.where(tgt % 2, src, -src), tgt))]
    return _cut(order, np.maximum(src_lengths, tgt_lengths)[order], batch_tokens)


def _cut(order: Indices, lengths: Integers, batch_tokens: int) -> list[Indices]:
    """Cut ``order`` into the longest stretches whose rows times longest length fit into ``batch_tokens``."""
    batches = []
    start = 0
    while start < len(order):
        most_rows = max(1, batch_tokens // int(lengths[start]))
        longest = np.maximum.accumulate(lengths[start : start + most_rows])
        fitting = int(np.count_nonzero(longest * np.arange(1, len(longest) + 1) <= batch_tokens))
        stop = start + max(1, fitting)
        batches.append(order[start:stop])
        start = stop
    return batches
