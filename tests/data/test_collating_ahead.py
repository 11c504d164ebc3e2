"""Batches that a thread collates ahead are those of the stream, and the thread keeps to its place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from mt.data.batches.batch import Batch, collate
from mt.data.batches.pairs import EncodedPairs, EncodedSentences
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
        return BatchStream(
            pairs=EncodedPairs(src, tgt), batch_tokens=30, num_micro_batches=2, seed=3, **options
        )

    return make


def take_steps(stream: BatchStream, num_steps: int, start: Position = (0, 0)) -> list[Any]:
    """Each step's tensors and seeds, and the position after it."""
    taken, position = [], start
    for _ in range(num_steps):
        batches, _, position = stream.take(position)
        taken.append(([(values(batch), batch.dropout_seed) for batch in batches], position))
    return taken


def values(batch: Batch) -> list[Any]:
    return [each.tolist() for each in vars(batch).values() if isinstance(each, torch.Tensor)]


@pytest.mark.parametrize("which", [{}, {"rank": 1, "num_processes": 2}], ids=["alone", "second of two"])
@pytest.mark.parametrize("start", [(0, 0), (0, 2)])
def test_the_steps_of_three_epochs_are_those_of_the_stream(
    start: Position, which: dict[str, int], make_stream: Callable[..., BatchStream]
) -> None:
    expected = take_steps(make_stream(**which), 3 * make_stream().num_steps(0), start)
    assert expected[-1][1] >= (3, 0)
    with ahead(make_stream(**which)) as stream:
        assert take_steps(stream, len(expected), start) == expected


def test_what_goes_wrong_in_the_thread_is_raised_where_the_step_is_taken(
    make_stream: Callable[..., BatchStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    num_collated = 0

    def spoilt(*arguments: Any) -> Batch:
        nonlocal num_collated
        num_collated += 1
        if num_collated == 6:
            raise DataError("the corpus cannot be read any more.")
        return collate(*arguments)

    monkeypatch.setattr("mt.data.batches.stream.collate", spoilt)
    with ahead(make_stream()) as stream:
        ((_, second),) = take_steps(stream, 1)
        ((_, third),) = take_steps(stream, 1, second)
        assert third == (0, 4)
        with pytest.raises(DataError, match="cannot be read any more"):
            stream.take(third)
