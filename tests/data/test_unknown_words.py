"""Which words are replaced with UNK: those aligned one to one, on both sides, as often as configured."""

import numpy as np

from mt.data.batches.stream import replace_some_with_unk, replace_with_unk
from mt.special_tokens import UNK_ID

SRC, TGT = np.array([10, 20, 30, 40], np.int32), np.array([50, 60, 70, 80, 90], np.int32)
# 20 is translated by two words, 40 by none: only 10 with 50, and 30 with 90, may be replaced.
PLACES = np.array([0, 1, 1, -1, 2], np.int16)


def test_only_words_linked_one_to_one_are_replaced_and_on_both_sides() -> None:
    seen = set()
    for seed in range(60):
        src, tgt = replace_with_unk(SRC, TGT, PLACES, 1, np.random.default_rng(seed))
        replaced = np.flatnonzero(src == UNK_ID).tolist()
        assert np.flatnonzero(tgt == UNK_ID).tolist() == [{0: 0, 2: 4}[place] for place in replaced]
        seen.add(tuple(replaced))
    assert seen == {(0,), (2,)}
    assert SRC.tolist() == [10, 20, 30, 40]


def test_the_rarer_of_two_is_replaced_more_often() -> None:
    generator = np.random.default_rng(1)
    replaced = [
        int(replace_with_unk(SRC, TGT, PLACES, 1, generator)[0].tolist().index(UNK_ID)) for _ in range(1000)
    ]
    # Of two draws from two words, one in four is the more frequent twice.
    assert 200 < replaced.count(0) < 300


def test_the_share_of_pairs_that_lose_a_word() -> None:
    generator = np.random.default_rng(3)
    num = 4000
    src, tgt = replace_some_with_unk([SRC] * num, [TGT] * num, [PLACES] * num, 0.3, generator)
    lost = np.array([np.count_nonzero(ids == UNK_ID) for ids in src])
    assert abs(np.mean(lost > 0) - 0.3) < 0.03
    assert (lost == 2).any()
    assert [np.count_nonzero(ids == UNK_ID) for ids in tgt] == lost.tolist()
