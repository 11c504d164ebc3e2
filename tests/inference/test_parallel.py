"""Work in parallel has the results of work one after another, and ends when it is told to."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from queue import SimpleQueue

import pytest
import torch

from mt.inference.parallel import Check, map_in_parallel


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    assert torch.get_num_threads() == 4
    torch.set_num_threads(before)


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("num_pieces", [0, 1, 2, 7])
def test_results_are_in_order_and_all_are_counted(number: int, num_pieces: int) -> None:
    pieces, done, begun = list(range(num_pieces)), [], []
    main = threading.current_thread()

    def check() -> None:
        assert threading.current_thread() is main
        begun.append(1)

    def after(piece: int) -> None:
        assert threading.current_thread() is main
        done.append(piece)

    squares = map_in_parallel(lambda n, _: n * n, pieces, number, check=check, after=after)
    assert squares == [n * n for n in pieces]
    assert sorted(done) == pieces
    assert len(begun) == num_pieces


@pytest.mark.parametrize(("num_pieces", "number", "share"), [(2, 2, 2), (4, 4, 1), (2, 4, 2)])
def test_pieces_are_done_at_the_same_time_on_a_share_of_the_threads(
    num_pieces: int, number: int, share: int
) -> None:
    all_begun = threading.Barrier(num_pieces, timeout=60)

    def work(piece: int, check: Check) -> int:
        all_begun.wait()
        return torch.get_num_threads()

    assert map_in_parallel(work, range(num_pieces), number) == [share] * num_pieces


def check_without_end(check: Check) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        check()
        time.sleep(0.001)


def an_error() -> None:
    raise ValueError


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("happens", "error"), [(an_error, ValueError), (ctrl_c, KeyboardInterrupt)])
def test_after_an_error_unfinished_work_is_abandoned_and_none_begins(
    happens: Callable[[], None], error: type[BaseException]
) -> None:
    both_begun, abandoned, begun = threading.Barrier(2, timeout=60), SimpleQueue[int](), set[int]()

    def work(piece: int, check: Check) -> None:
        begun.add(piece)
        both_begun.wait()
        if piece == 0:
            happens()
        try:
            check_without_end(check)
        except CancelledError:
            abandoned.put(piece)
            raise

    with pytest.raises(error):
        map_in_parallel(work, range(100), 2)
    expected = {1} if error is ValueError else {0, 1}
    assert {abandoned.get(timeout=60) for _ in expected} == expected
    assert begun == {0, 1}


@pytest.mark.parametrize("number", [1, 2])
def test_the_check_of_the_caller_ends_all(number: int) -> None:
    begun: list[int] = []

    def check() -> None:
        if begun:
            raise InterruptedError

    def work(piece: int, check: Check) -> None:
        begun.append(piece)
        check_without_end(check)

    with pytest.raises(InterruptedError):
        map_in_parallel(work, range(100), number, check=check)
    assert len(begun) <= number
