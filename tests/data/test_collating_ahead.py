"""Batches that a thread collates ahead are those of the stream, and the thread keeps to its place."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from mt.data.batches.batch import Batch
from mt.data.batches.dataset import EncodedPairs, EncodedSentences
from mt.data.batches.stream import BatchStream
from mt.errors import DataError

Position = tuple[int, int]


@contextmanager
def ahead(stream: BatchStream) -> Iterator[BatchStream]:
    with stream.collating_ahead(pinned=False):
        yield stream


@pytest.fixture
def make_stream() -> Callable[..., BatchStream]:
    """A stream of 30 pairs, two micro-batches a step."""

    def make(**options: Any) -> BatchStream:
        generator = np.random.default_rng(6)
        src, tgt = (
            EncodedSentences.of([[100 + i, *[5] * int(generator.integers(0, 9))] for i in range(30)])
            for _ in range(2)
        )
        return BatchStream(EncodedPairs(src, tgt), batch_tokens=30, num_micro_batches=2, seed=3, **options)

    return make


def take_steps(stream: BatchStream, num_steps: int, start: Position = (0, 0), **which: int) -> list[Any]:
    """Each step's tensors and seeds, and the position after it."""
    taken, position = [], start
    for _ in range(num_steps):
        batches, *following = stream.take(*position, **which)
        position = (following[0], following[1])
        taken.append(([(values(batch), batch.dropout_seed) for batch in batches], position))
    return taken


def values(batch: Batch) -> list[Any]:
    return [each.tolist() for each in vars(batch).values() if isinstance(each, torch.Tensor)]


@pytest.mark.parametrize("which", [{}, {"rank": 1, "num_processes": 2}], ids=["alone", "second of two"])
@pytest.mark.parametrize("start", [(0, 0), (0, 2)])
def test_the_steps_of_three_epochs_are_those_of_the_stream(
    start: Position, which: dict[str, int], make_stream: Callable[..., BatchStream]
) -> None:
    expected = take_steps(make_stream(), 3 * make_stream().num_steps(0), start, **which)
    assert expected[-1][1] >= (3, 0)
    with ahead(make_stream()) as stream:
        assert take_steps(stream, len(expected), start, **which) == expected


def test_any_other_position_is_taken_too(make_stream: Callable[..., BatchStream]) -> None:
    expected = [take_steps(make_stream(), 1, position) for position in ((0, 4), (0, 0), (1, 2))]
    with ahead(make_stream()) as stream:
        assert [take_steps(stream, 1, position) for position in ((0, 4), (0, 0), (1, 2))] == expected


def test_a_thread_collates_all_but_the_first_step_of_an_epoch_and_makes_no_epoch(
    make_stream: Callable[..., BatchStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    main, collated, made = threading.current_thread(), [], []
    batch, segmented = BatchStream._batch, BatchStream._with_bpe_dropout

    def noted_batch(self: BatchStream, *arguments: Any) -> Batch:
        collated.append((arguments[1:], threading.current_thread() is main))
        return batch(self, *arguments)

    def noted_epoch(self: BatchStream, *arguments: Any) -> EncodedPairs:
        made.append(threading.current_thread() is main)
        return segmented(self, *arguments)

    monkeypatch.setattr(BatchStream, "_batch", noted_batch)
    monkeypatch.setattr(BatchStream, "_with_bpe_dropout", noted_epoch)
    with ahead(make_stream()) as stream:
        take_steps(stream, 2 * stream.num_steps(0))
    assert made == [True, True]
    by_position = dict(collated)
    assert len(by_position) == len(collated)
    assert {position for position, in_main in by_position.items() if in_main} == {
        (epoch, number) for epoch in (0, 1) for number in (0, 1)
    }
    assert len(by_position) > 4


def test_what_goes_wrong_in_the_thread_is_raised_where_the_step_is_taken(
    make_stream: Callable[..., BatchStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = BatchStream._batch

    def spoilt(self: BatchStream, indices: Any, epoch: int, number: int) -> Batch:
        if number == 5:
            raise DataError("the corpus cannot be read any more.")
        return batch(self, indices, epoch, number)

    monkeypatch.setattr(BatchStream, "_batch", spoilt)
    with ahead(make_stream()) as stream:
        ((_, second),) = take_steps(stream, 1)
        ((_, third),) = take_steps(stream, 1, second)
        assert third == (0, 4)
        with pytest.raises(DataError, match="cannot be read any more"):
            stream.take(*third)


@pytest.mark.parametrize("error", [None, DataError("wrong"), KeyboardInterrupt()], ids=str)
def test_no_thread_is_left_behind(
    error: BaseException | None, make_stream: Callable[..., BatchStream]
) -> None:
    before = threading.active_count()

    def take_two() -> None:
        with ahead(make_stream()) as stream:
            take_steps(stream, 2)
            assert threading.active_count() == before + 1
            if error is not None:
                raise error

    if error is None:
        take_two()
    else:
        with pytest.raises(type(error)):
            take_two()
    assert threading.active_count() == before
