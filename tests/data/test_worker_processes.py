"""Other processes compute in order, fail in order, and never outlive the one that started them."""

import math
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mt.data.worker_processes import map_in_order
from mt.errors import DataError

# Two processes that are busy for an hour, as soon as a line is printed.
BUSY = """
import time
from contextlib import closing
from mt.data.worker_processes import map_in_order
assert __name__ == "__main__", "imported by a worker"
with closing(map_in_order(time.sleep, [0] * 4 + [3600] * 2, 2)) as results:
    for _ in results:
        print("ready", flush=True)
"""


def test_results_come_in_the_order_of_the_tasks_and_an_error_in_its_place() -> None:
    results = map_in_order(math.sqrt, [float(i) for i in range(20)] + [-1.0] + [4.0] * 20, 2)
    with closing(results):
        for i in range(20):
            assert next(results) == math.sqrt(i)
        with pytest.raises(ValueError, match=r"math domain|nonnegative"):
            next(results)
    assert not list(children(os.getpid()))


def test_tasks_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for i in range(1000):
            taken.append(i)
            yield i

    with closing(map_in_order(operator.neg, tasks(), 2)) as results:
        assert next(results) == 0
    assert len(taken) < 10
    assert not list(children(os.getpid()))


def test_a_killed_process_is_one_sentence() -> None:
    tasks = [signal.SIGURG] * 3 + [signal.SIGKILL] + [signal.SIGURG] * 20
    with (
        pytest.raises(DataError, match=r"was killed.*data\.workers"),
        closing(map_in_order(signal.raise_signal, tasks, 2)) as results,
    ):
        list(results)
    assert not list(children(os.getpid()))


@pytest.mark.parametrize("how", ["ctrl-c", "kill -9"])
def test_nothing_outlives_the_process_that_asked(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BUSY)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    workers = list(children(process.pid))
    assert workers
    if how == "ctrl-c":
        # As from a terminal, which sends it to every process.
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.kill()
    _, errors = process.communicate(timeout=60)
    assert errors.count("Traceback") == (1 if how == "ctrl-c" else 0), errors
    assert ("KeyboardInterrupt" in errors) == (how == "ctrl-c")
    deadline = time.monotonic() + 60
    while any(map(is_running, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    """The workers that this process has started and that still run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and is_running(int(folder.name)):
            with suppress(OSError):  # It has ended meanwhile.
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == pid and b"spawn_main" in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
