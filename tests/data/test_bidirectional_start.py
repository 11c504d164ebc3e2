"""Both directions of the pairs in the first epochs, as a function of (seed, epoch); then the wanted one."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from mt.data.batches.batch import Batch
from mt.data.batches.dataset import EncodedPairs, EncodedSentences
from mt.data.batches.stream import BatchStream
from mt.special_tokens import PAD_ID

NUM_PAIRS, BATCH_TOKENS = 60, 40
SRC, TGT = 7, 8


@pytest.fixture
def pairs() -> EncodedPairs:
    """Each side begins with the pair's number, and goes on with words of its language."""
    generator = np.random.default_rng(6)

    def side(word: int) -> EncodedSentences:
        return EncodedSentences.of(
            [[100 + i, *[word] * int(generator.integers(1, 9))] for i in range(NUM_PAIRS)]
        )

    return EncodedPairs(side(SRC), side(TGT))


def make_stream(pairs: EncodedPairs, bidirectional_epochs: int, seed: int = 1) -> BatchStream:
    return BatchStream(
        pairs,
        batch_tokens=BATCH_TOKENS,
        num_micro_batches=2,
        seed=seed,
        bidirectional_epochs=bidirectional_epochs,
    )


def batches_of(stream: BatchStream, epoch: int) -> Iterator[Batch]:
    position = (epoch, 0)
    while position[0] == epoch:
        batches, *following = stream.take(*position)
        yield from batches
        position = (following[0], following[1])


def forward(batch: Batch, pairs: EncodedPairs) -> dict[int, bool]:
    """Whether each pair of the batch, by its number, goes from source to target."""
    found = {}
    for read, written in zip(*batch.sentences(), strict=True):
        number = read[0] - 100
        src, tgt = pairs.src[number].tolist(), pairs.tgt[number].tolist()
        assert (read, written) in ((src, tgt), (tgt, src))
        found[number] = read == src
    return found


def directions(stream: BatchStream, epoch: int, pairs: EncodedPairs) -> dict[int, bool]:
    found: dict[int, bool] = {}
    num_rows = 0
    for batch in batches_of(stream, epoch):
        found |= forward(batch, pairs)
        num_rows += len(batch.labels)
    assert sorted(found) == list(range(NUM_PAIRS))
    assert num_rows == NUM_PAIRS
    return found


def test_two_epochs_show_each_pair_once_in_each_direction(pairs: EncodedPairs) -> None:
    stream = make_stream(pairs, 4)
    drawn = [directions(stream, epoch, pairs) for epoch in range(4)]
    for first, second in ((drawn[0], drawn[1]), (drawn[2], drawn[3])):
        assert second == {number: not is_forward for number, is_forward in first.items()}
    assert drawn[0] != drawn[2]
    assert 20 < sum(drawn[0].values()) < 40


def test_a_batch_holds_both_directions(pairs: EncodedPairs) -> None:
    batches = [forward(batch, pairs) for batch in batches_of(make_stream(pairs, 1), 0)]
    mixed = [len(set(batch.values())) == 2 for batch in batches if len(batch) >= 4]
    assert sum(mixed) > len(mixed) / 2


def test_directions_are_a_function_of_seed_and_epoch(pairs: EncodedPairs) -> None:
    stream = make_stream(pairs, 9)
    expected = [directions(stream, epoch, pairs) for epoch in range(4)]
    for epoch in (3, 0, 2):
        torch.manual_seed(epoch)
        assert directions(make_stream(pairs, 4), epoch, pairs) == expected[epoch]
    assert directions(make_stream(pairs, 4, seed=2), 0, pairs) != expected[0]


@pytest.mark.parametrize("bidirectional_epochs", [1, 2])
def test_after_the_switch_batches_are_those_of_a_run_without(
    bidirectional_epochs: int, pairs: EncodedPairs
) -> None:
    stream, plain = make_stream(pairs, bidirectional_epochs), make_stream(pairs, 0)
    assert not all(directions(stream, bidirectional_epochs - 1, pairs).values())
    for epoch in (bidirectional_epochs, bidirectional_epochs + 1):
        both = (batches_of(each, epoch) for each in (stream, plain))
        for ours, theirs in zip(*both, strict=True):
            assert torch.equal(ours.src_ids, theirs.src_ids)
            assert torch.equal(ours.labels, theirs.labels)
            assert ours.dropout_seed == theirs.dropout_seed


def test_batches_are_made_of_pairs_in_their_directions(pairs: EncodedPairs) -> None:
    stream = make_stream(pairs, 1)
    batches = list(batches_of(stream, 0))
    assert all(max(batch.src_ids.numel(), batch.labels.numel()) <= BATCH_TOKENS for batch in batches)
    num_target_tokens = sum(int((batch.labels != PAD_ID).sum()) for batch in batches)
    assert stream.num_target_tokens(0) == num_target_tokens
    assert num_target_tokens != make_stream(pairs, 0).num_target_tokens(0)
