"""Batches of indices: each pair once, within the budget, like lengths together, drawn from (seed, epoch)."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from mt.data.sampler import epoch_batches, ordered_batches, sentence_batches

Lengths = npt.NDArray[np.int64]


def corpus_lengths(num_pairs: int, seed: int = 0) -> tuple[Lengths, Lengths]:
    """Lengths such as real text has: long-tailed, the two sides alike."""
    generator = np.random.default_rng(seed)
    src = generator.gamma(6.0, 2.2, num_pairs).astype(np.int64) + 2
    return src, np.maximum(2, (src * generator.normal(1.0, 0.15, num_pairs)).astype(np.int64))


def padding_waste(batches: list[Lengths], lengths: Lengths) -> float:
    return 1 - int(lengths.sum()) / sum(len(batch) * int(lengths[batch].max()) for batch in batches)


@pytest.mark.parametrize("batch_tokens", [1, 40, 1000, 100_000])
@pytest.mark.parametrize("num_pairs", [1, 2, 777])
def test_every_pair_comes_once_and_within_the_budget(num_pairs: int, batch_tokens: int) -> None:
    src, tgt = corpus_lengths(num_pairs)
    for batches in (
        epoch_batches(src, tgt, batch_tokens=batch_tokens, seed=3, epoch=2),
        ordered_batches(src, tgt, batch_tokens=batch_tokens),
    ):
        assert sorted(np.concatenate(batches)) == list(range(num_pairs))
        for batch in batches:
            assert len(batch) == 1 or len(batch) * max(src[batch].max(), tgt[batch].max()) <= batch_tokens


def test_batches_are_cut_no_earlier_than_need_be() -> None:
    src, tgt = corpus_lengths(2000)
    for batch, following in pairwise(ordered_batches(src, tgt, batch_tokens=500)):
        one_more = np.append(batch, following[0])
        assert len(one_more) * max(src[one_more].max(), tgt[one_more].max()) > 500


def test_no_pairs_make_no_batches() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert epoch_batches(nothing, nothing, batch_tokens=10, seed=1, epoch=0) == []
    assert sentence_batches(nothing, batch_sentences=3) == []


def test_order_is_a_function_of_seed_and_epoch() -> None:
    src, tgt = corpus_lengths(3000)

    def order(seed: int, epoch: int) -> list[list[int]]:
        np.random.seed(epoch)  # the global generator must not matter
        return [batch.tolist() for batch in epoch_batches(src, tgt, batch_tokens=300, seed=seed, epoch=epoch)]

    assert order(1, 0) == order(1, 0)
    orders = [order(1, 0), order(1, 1), order(2, 0), order(2, 1)]
    assert all(first != second for i, first in enumerate(orders) for second in orders[:i])


def test_epochs_differ_in_which_pairs_meet_and_in_the_order_of_lengths() -> None:
    src, tgt = corpus_lengths(3000)
    epochs = [epoch_batches(src, tgt, batch_tokens=300, seed=1, epoch=epoch) for epoch in (0, 1)]
    first, second = ({frozenset(batch.tolist()) for batch in batches} for batches in epochs)
    assert len(first & second) < 0.2 * len(first)
    lengths = [[int(tgt[batch].max()) for batch in batches] for batches in epochs]
    assert lengths[0] != lengths[1]
    assert abs(np.corrcoef(np.arange(len(lengths[0])), lengths[0])[0, 1]) < 0.3


def test_little_padding_is_computed() -> None:
    src, tgt = corpus_lengths(30_000)
    batches = epoch_batches(src, tgt, batch_tokens=4096, seed=1, epoch=0)
    assert padding_waste(batches, tgt) < 0.02
    assert padding_waste(batches, src) < 0.15


def test_sentence_batches_go_from_short_to_long() -> None:
    lengths = np.array([5, 1, 3, 3, 2])
    batches = [batch.tolist() for batch in sentence_batches(lengths, batch_sentences=2)]
    assert batches == [[1, 4], [2, 3], [0]]
