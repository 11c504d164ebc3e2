"""Which words are replaced with UNK: those aligned one to one, on both sides, as often as configured."""

import numpy as np

from mt.data.batches.stream import replace_with_unk
from mt.special_tokens import UNK_ID

SRC, TGT = np.array([10, 20, 30, 40], np.int32), np.array([50, 60, 70, 80, 90], np.int32)
# 20 is translated by two words, 40 by none: only 10 with 50, and 30 with 90, may be replaced.
PLACES = np.array([0, 1, 1, -1, 2], np.int16)


def replaced_in(num_pairs: int, share: float, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    """The positions of UNK in each source and target of so many equal pairs."""
    many = [SRC] * num_pairs, [TGT] * num_pairs, [PLACES] * num_pairs
    src, tgt = replace_with_unk(*many, share, np.random.default_rng(seed))
    assert SRC.tolist() == [10, 20, 30, 40]
    return tuple([np.flatnonzero(ids == UNK_ID).tolist() for ids in side] for side in (src, tgt))  # type: ignore[return-value]


def test_only_words_linked_one_to_one_are_replaced_on_both_sides_in_a_share_of_pairs() -> None:
    src, tgt = replaced_in(4000, 0.3, 1)
    assert tgt == [[{0: 0, 2: 4}[place] for place in places] for places in src]
    assert {tuple(places) for places in src} == {(), (0,), (2,), (0, 2)}
    assert abs(np.mean([len(places) > 0 for places in src]) - 0.3) < 0.03


def test_the_rarer_of_two_is_replaced_more_often() -> None:
    src, _ = replaced_in(20_000, 0.05, 2)
    # Of two draws from two words, one in four is the more frequent twice.
    assert 0.2 < src.count([0]) / (src.count([0]) + src.count([2])) < 0.3
