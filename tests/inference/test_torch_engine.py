"""Which sentences are searched together; and batches in parallel, which end when they are told to."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mt.inference.engines import Check, batches_by_length
from mt.inference.torch_engine import in_parallel


@given(
    lengths=st.lists(st.integers(1, 60), max_size=300),
    most_tokens=st.integers(1, 2000),
    most_sentences=st.integers(1, 200),
)
def test_each_sentence_is_in_one_batch_of_its_length(
    lengths: list[int], most_tokens: int, most_sentences: int
) -> None:
    batches = batches_by_length(lengths, most_tokens, most_sentences)
    assert sorted(index for batch in batches for index in batch) == [*range(len(lengths))]
    ordered = [lengths[index] for batch in batches for index in batch]
    assert ordered == sorted(ordered, reverse=True)
    for batch in batches:
        assert len(batch) <= most_sentences
        assert len(batch) == 1 or lengths[batch[0]] * len(batch) <= most_tokens


@pytest.fixture
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    assert torch.get_num_threads() == 4
    torch.set_num_threads(before)


def nothing() -> None:
    pass


@pytest.mark.usefixtures("_four_threads")
@pytest.mark.parametrize(("at_once", "share"), [(1, 4), (2, 2), (4, 1)])
def test_results_are_in_order_and_each_batch_has_a_share_of_the_threads(at_once: int, share: int) -> None:
    batches = [[index] for index in range(8)]
    all_begun = threading.Barrier(at_once, timeout=60)
    done: list[list[int]] = []

    def search(batch: list[int], check: Check) -> tuple[int, int]:
        all_begun.wait()
        return batch[0], torch.get_num_threads()

    found = in_parallel(search, batches, at_once, nothing, lambda batch: done.append([*batch]))
    assert found == [(index, share) for index in range(8)]
    assert sorted(done) == batches
    assert in_parallel(search, [], 0, nothing, lambda batch: None) == []


def an_error() -> None:
    raise ValueError


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("_four_threads")
@pytest.mark.parametrize(("happens", "error"), [(an_error, ValueError), (ctrl_c, KeyboardInterrupt)])
def test_after_an_error_unfinished_work_is_abandoned(
    happens: Callable[[], None], error: type[BaseException]
) -> None:
    both_begun, begun, abandoned = threading.Barrier(2, timeout=60), set[int](), set[int]()
    happened_at: list[float] = []

    def search(batch: list[int], check: Check) -> None:
        begun.add(batch[0])
        if batch[0] < 2:
            both_begun.wait()
        if batch[0] == 0:
            happened_at.append(time.monotonic())
            happens()
        try:
            for _ in range(60_000):
                check()
                time.sleep(0.001)
        except CancelledError:
            abandoned.add(batch[0])
            raise

    with pytest.raises(error):
        in_parallel(search, [[index] for index in range(100)], 2, nothing, lambda batch: None)
    assert time.monotonic() < happened_at[0] + 1
    assert begun <= {0, 1, 2}
    assert abandoned >= {1}


@pytest.mark.usefixtures("_four_threads")
@pytest.mark.parametrize("at_once", [1, 2])
def test_the_check_of_the_caller_ends_all(at_once: int) -> None:
    begun: list[int] = []

    def check() -> None:
        if begun:
            raise InterruptedError

    def search(batch: list[int], check: Check) -> None:
        begun.extend(batch)
        for _ in range(60_000):
            check()
            time.sleep(0.001)

    with pytest.raises(InterruptedError):
        in_parallel(search, [[index] for index in range(100)], at_once, check, lambda batch: None)
    assert len(begun) <= 2 * at_once
