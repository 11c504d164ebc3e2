"""Work at once has the results of work one after another, and ends when it is told to."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import torch

from mt.config.config import Config
from mt.run_directory import RunDirectory
from mt.threads import Check, map_at_once, num_at_once
from mt.training.loop import train
from mt.training.run import run_training


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_a_cpu_does_one_piece_for_each_thread_and_a_gpu_one() -> None:
    assert num_at_once(torch.device("cpu")) == 4
    assert num_at_once(torch.device("cuda")) == 1
    for num_threads, expected in ((1, 1), (2, 2), (16, 4)):
        torch.set_num_threads(num_threads)
        assert num_at_once(torch.device("cpu")) == expected


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("num_pieces", [0, 1, 2, 7])
def test_results_are_in_order_and_all_that_are_done_are_counted(number: int, num_pieces: int) -> None:
    pieces, done, begun = list(range(num_pieces)), [], []
    main = threading.current_thread()

    def check() -> None:
        assert threading.current_thread() is main
        begun.append(1)

    def after(piece: int) -> None:
        assert threading.current_thread() is main
        done.append(piece)

    squares = map_at_once(lambda n, _: n * n, pieces, number, check=check, after=after)
    assert squares == [n * n for n in pieces]
    assert sorted(done) == pieces
    assert len(begun) == num_pieces


@pytest.mark.parametrize(("num_pieces", "number", "share"), [(2, 2, 2), (4, 4, 1), (2, 4, 2)])
def test_pieces_are_done_at_the_same_time_on_a_share_of_the_threads(
    num_pieces: int, number: int, share: int
) -> None:
    all_begun = threading.Barrier(num_pieces, timeout=60)

    def work(piece: int, check: Check) -> int:
        # Nobody passes before as many are there.
        all_begun.wait()
        return torch.get_num_threads()

    assert map_at_once(work, range(num_pieces), number) == [share] * num_pieces
    assert torch.get_num_threads() == 4


def test_after_an_error_no_other_piece_begins() -> None:
    begun: list[int] = []

    def work(piece: int, check: Check) -> None:
        begun.append(piece)
        if piece == 1:
            raise ValueError("the second")

    with pytest.raises(ValueError, match="the second"):
        map_at_once(work, range(100), 2)
    # It is seen when a place is free, at the latest two pieces later.
    assert set(begun) <= {0, 1, 2, 3}
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("number", [1, 2])
def test_before_a_piece_it_may_be_stopped(number: int) -> None:
    begun: list[int] = []

    def check() -> None:
        if len(begun) >= 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        map_at_once(lambda piece, _: begun.append(piece), range(100), number, check=check)
    assert len(begun) <= 3 + number


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
def test_unfinished_work_is_given_up(happens: Callable[[], None], error: type[BaseException]) -> None:
    all_begun, given_up = threading.Barrier(2, timeout=60), SimpleQueue[int]()

    def work(piece: int, check: Check) -> None:
        all_begun.wait()
        if piece == 0:
            happens()
        try:
            check_without_end(check)
        except CancelledError:
            given_up.put(piece)
            raise

    with pytest.raises(error):
        map_at_once(work, range(100), 2)
    expected = {1} if error is ValueError else {0, 1}
    assert {given_up.get(timeout=60) for _ in expected} == expected
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("number", [1, 2])
def test_a_piece_may_be_stopped_by_the_callers_check(number: int) -> None:
    has_begun = threading.Event()

    def check() -> None:
        if has_begun.is_set():
            raise InterruptedError

    def work(piece: int, check: Check) -> None:
        has_begun.set()
        check_without_end(check)

    with pytest.raises(InterruptedError):
        map_at_once(work, range(2), number, check=check)


MKL = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def _has_mkl() -> bool:
    return MKL.exists() and hasattr(ctypes.CDLL(str(MKL)), "mkl_serv_get_dynamic")


@pytest.mark.skipif(not _has_mkl(), reason="needs a torch with MKL")
def test_mkl_chooses_no_number_of_threads_before_or_after_work_at_once() -> None:
    # In a process of its own: in this one the number has been set.
    code = f"""
import ctypes
from mt.threads import fix_num_threads, map_at_once
chooses = ctypes.CDLL({str(MKL)!r}).mkl_serv_get_dynamic
fix_num_threads()
print(chooses())
map_at_once(lambda piece, check: piece, [1, 2], 2)
print(chooses())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["0", "0"]


def test_the_number_of_threads_is_fixed_before_the_first_step(
    make_config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def observed(*arguments: Any, **options: Any) -> str | None:
        calls.append("train")
        return train(*arguments, **options)

    monkeypatch.setattr("mt.training.run.fix_num_threads", lambda: calls.append("fixed"))
    monkeypatch.setattr("mt.training.run.train", observed)
    run_training(make_config("training.max_steps=1"), RunDirectory(tmp_path / "run"))
    assert calls == ["fixed", "train"]
