"""Batches of indices: each pair once, within the budget, like lengths together, drawn from (seed, epoch)."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from mt.data.batches.sampler import Share, epoch_batches, ordered_batches

Lengths = npt.NDArray[np.int64]


def corpus_lengths(num_pairs: int, seed: int = 0) -> tuple[Lengths, Lengths]:
    """Lengths such as real text has: long-tailed, the two sides alike."""
    generator = np.random.default_rng(seed)
    src = generator.gamma(6.0, 2.2, num_pairs).astype(np.int64) + 2
    return src, np.maximum(2, (src * generator.normal(1.0, 0.15, num_pairs)).astype(np.int64))


@pytest.mark.parametrize("batch_tokens", [1, 40, 1000, 100_000])
@pytest.mark.parametrize("num_pairs", [1, 2, 777, 30_000])
def test_batches_are_those_of_a_plain_loop_over_the_same_draws(num_pairs: int, batch_tokens: int) -> None:
    src, tgt = corpus_lengths(num_pairs)
    lengths = list(zip(src.tolist(), tgt.tolist(), strict=True))

    def loop(order: list[int]) -> list[list[int]]:
        """Alike lengths together; no batch is cut earlier than need be, and each pair has a place."""
        order.sort(key=lambda i: (lengths[i][1], lengths[i][0] if lengths[i][1] % 2 else -lengths[i][0]))
        cut: list[list[int]] = [[]]
        longest = 0
        for i in order:
            longest = max(longest, *lengths[i])
            if cut[-1] and (len(cut[-1]) + 1) * longest > batch_tokens:
                cut.append([])
                longest = max(lengths[i])
            cut[-1].append(i)
        return cut

    generator = np.random.default_rng([9, 4])
    cut = loop(generator.permutation(num_pairs).tolist())
    expected = [cut[i] for i in generator.permutation(len(cut))]
    np.random.seed(num_pairs)  # The global generator must not matter.
    batches = epoch_batches(src, tgt, batch_tokens=batch_tokens, seed=9, epoch=4)
    assert [batch.tolist() for batch in batches] == expected
    in_order = ordered_batches(src, tgt, batch_tokens=batch_tokens)
    assert [batch.tolist() for batch in in_order] == loop(list(range(num_pairs)))
    if (num_pairs, batch_tokens) == (30_000, 1000):
        for side, most in ((tgt, 0.03), (src, 0.16)):
            padded = sum(len(batch) * int(side[batch].max()) for batch in batches)
            assert 1 - int(side.sum()) / padded < most


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


def test_a_fraction_of_pairs_is_rounded() -> None:
    src, tgt = corpus_lengths(100)
    # 0.29 * 100 is a little less than 29.
    shown = epoch_batches(src, tgt, batch_tokens=300, seed=1, epoch=0, shares=[Share(100, 0.29)])
    assert sum(map(len, shown)) == 29
