"""Batches of indices: each pair once, within the budget, like lengths together, drawn from (seed, epoch)."""

import tracemalloc
from collections import Counter
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from mt.data.batches import sampler
from mt.data.batches.sampler import Batches, Share, epoch_batches, ordered_batches

Lengths = npt.NDArray[np.int64]


def corpus_lengths(num_pairs: int, seed: int = 0) -> tuple[Lengths, Lengths]:
    """Lengths such as real text has: long-tailed, the two sides alike."""
    generator = np.random.default_rng(seed)
    src = generator.gamma(6.0, 2.2, num_pairs).astype(np.int64) + 2
    return src, np.maximum(2, (src * generator.normal(1.0, 0.15, num_pairs)).astype(np.int64))


def padding_waste(batches: Batches, lengths: Lengths) -> float:
    return 1 - int(lengths.sum()) / sum(len(batch) * int(lengths[batch].max()) for batch in batches)


@pytest.mark.parametrize("batch_tokens", [1, 40, 1000, 100_000])
@pytest.mark.parametrize("num_pairs", [1, 2, 777])
def test_every_pair_comes_once_and_within_the_budget(num_pairs: int, batch_tokens: int) -> None:
    src, tgt = corpus_lengths(num_pairs)
    for batches in (
        epoch_batches(src, tgt, batch_tokens=batch_tokens, seed=3, epoch=2),
        ordered_batches(src, tgt, batch_tokens=batch_tokens),
    ):
        assert sorted(np.concatenate(list(batches))) == list(range(num_pairs))
        for batch in batches:
            assert len(batch) == 1 or len(batch) * max(src[batch].max(), tgt[batch].max()) <= batch_tokens


def test_batches_are_cut_no_earlier_than_need_be() -> None:
    src, tgt = corpus_lengths(2000)
    for batch, following in pairwise(ordered_batches(src, tgt, batch_tokens=500)):
        one_more = np.append(batch, following[0])
        assert len(one_more) * max(src[one_more].max(), tgt[one_more].max()) > 500


def test_no_pairs_make_no_batches() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert list(epoch_batches(nothing, nothing, batch_tokens=10, seed=1, epoch=0)) == []
    assert list(ordered_batches(nothing, nothing, batch_tokens=10)) == []


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


def test_batches_are_those_of_a_plain_loop_over_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "_BLOCK_SIZE", 100)
    src, tgt = corpus_lengths(1500)
    generator = np.random.default_rng([9, 4])
    order = generator.permutation(len(src)).tolist()
    order.sort(key=lambda i: (tgt[i], src[i] if tgt[i] % 2 else -src[i]))
    cut: list[list[int]] = [[]]
    for i in order:
        rows = [*cut[-1], i]
        if cut[-1] and len(rows) * max(max(src[j], tgt[j]) for j in rows) > 300:
            cut.append([])
        cut[-1].append(i)
    expected = [cut[i] for i in generator.permutation(len(cut))]
    batches = epoch_batches(src, tgt, batch_tokens=300, seed=9, epoch=4)
    assert [batch.tolist() for batch in batches] == expected
    assert [batches[number].tolist() for number in range(len(batches))] == expected


def test_weights_say_how_often_a_pair_comes() -> None:
    shares = [Share(300, 1.0), Share(200, 2.25), Share(100, 0.5), Share(50, 3.0)]
    src, tgt = corpus_lengths(650)
    totals = np.zeros(650, dtype=np.int64)
    drawn = []
    for epoch in range(60):
        batches = epoch_batches(src, tgt, batch_tokens=300, seed=1, epoch=epoch, shares=shares)
        times = np.bincount(np.concatenate(list(batches)), minlength=650)
        assert set(times[:300]) == {1}
        assert Counter(times[300:500].tolist()) == {2: 150, 3: 50}
        assert Counter(times[500:600].tolist()) == {0: 50, 1: 50}
        assert set(times[600:]) == {3}
        totals += times
        drawn.append(frozenset(np.flatnonzero(times[500:600]).tolist()))
    assert len(set(drawn)) == 60  # Another half each time, ...
    assert totals[500:600].min() > 10  # ... so that all come in the end.
    assert totals[500:600].max() < 50


def test_weights_of_one_change_nothing() -> None:
    src, tgt = corpus_lengths(500)
    plain = epoch_batches(src, tgt, batch_tokens=300, seed=1, epoch=2)
    weighted = epoch_batches(
        src, tgt, batch_tokens=300, seed=1, epoch=2, shares=[Share(200, 1.0), Share(300, 1.0)]
    )
    assert [batch.tolist() for batch in plain] == [batch.tolist() for batch in weighted]


def test_a_plan_takes_few_bytes_a_pair_and_its_making_not_many_more() -> None:
    src, tgt = (side.astype(np.int32) for side in corpus_lengths(300_000))
    tracemalloc.start()
    batches = epoch_batches(src, tgt, batch_tokens=2000, seed=1, epoch=0)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(batches) > 1500
    assert kept < 5 * len(src)
    assert peak < 17 * len(src) + 60 * sampler._BLOCK_SIZE
