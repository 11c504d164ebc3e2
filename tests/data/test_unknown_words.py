"""Which words are replaced with UNK: those aligned one to one, on both sides, as often as configured."""

import numpy as np

from mt.data.batches.dataset import EncodedPairs, EncodedSentences
from mt.data.batches.stream import BatchStream, replace_some_with_unk, replace_with_unk
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


def test_nothing_is_replaced_where_nothing_is_linked() -> None:
    src, tgt = replace_with_unk(SRC, TGT, np.full(5, -1, np.int16), 3, np.random.default_rng(1))
    assert src is SRC
    assert tgt is TGT


def test_the_share_of_pairs_that_lose_a_word() -> None:
    generator = np.random.default_rng(3)
    num = 4000
    src, tgt = replace_some_with_unk([SRC] * num, [TGT] * num, [PLACES] * num, 0.3, generator)
    lost = np.array([np.count_nonzero(ids == UNK_ID) for ids in src])
    assert abs(np.mean(lost > 0) - 0.3) < 0.03
    assert (lost == 2).any()
    assert [np.count_nonzero(ids == UNK_ID) for ids in tgt] == lost.tolist()


def test_a_position_of_the_data_replaces_the_same_words_whoever_comes_there() -> None:
    generator = np.random.default_rng(4)
    sentences = [generator.integers(4, 40, n).tolist() for n in generator.integers(2, 9, 40).tolist()]
    side = EncodedSentences.of(sentences)
    places = np.concatenate([np.arange(len(ids)) for ids in sentences]).astype(np.int16)

    def stream() -> BatchStream:
        return BatchStream(
            EncodedPairs(side, side),
            batch_tokens=40,
            num_micro_batches=2,
            seed=7,
            places=places,
            unknown_share=0.5,
        )

    first, second = stream(), stream()
    position = (0, 0)
    replaced = 0
    while position[0] < 2:
        batches, *rest = first.take(*position)
        # Another stream begins right here.
        again, *_ = second.take(*position)
        for one, other in zip(batches, again, strict=True):
            assert one.src_ids.equal(other.src_ids)
            assert one.labels.equal(other.labels)
            assert one.alignment is not None
            assert other.alignment is not None
            assert one.alignment.equal(other.alignment)
            assert (one.src_ids == UNK_ID).sum() == (one.labels == UNK_ID).sum()
            replaced += int((one.src_ids == UNK_ID).sum())
        position = (rest[0], rest[1])
    assert replaced > 20
