"""Two processes that want to train in one run directory."""

import random
import signal
import socket
import subprocess
import time
from pathlib import Path

from .driver import LONGEST_SECONDS
from .kills import finish_by_command
from .processes import Driver, end_of, start_command
from .trial import Arena, Task, Trial, read_stderr

PHASE = "two writers"
MOST_SECONDS = 2.0


def two_writers(count: int, chance: random.Random) -> list[Task]:
    """The second is refused while the first trains, and continues when it was killed."""
    return [second_writer(chance.random()) for _ in range(count)]


def second_writer(wait: float) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(PHASE, f"the second {wait:.1f} seconds after the first")
        first = start_command(arena.config, run)
        pid = _wait_for_holder(first, run)
        time.sleep(wait / 2)
        # It must not end before the second has come.
        first.send_signal(signal.SIGSTOP)
        _refuse_second(trial, arena, run, pid)
        first.kill()
        first.wait()
        if not (run / "lock").read_text().startswith(f"{pid} "):
            trial.blame("wrong", "the refused process has written into the lock")
        finish_by_command(trial, arena, run)
        return trial

    return task


def _wait_for_holder(process: subprocess.Popen[str], run: Path) -> int:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not ((run / "lock").exists() and (run / "lock").read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return process.pid


def _refuse_second(trial: Trial, arena: Arena, run: Path, pid: int) -> None:
    said = len(read_stderr(run))
    started = time.monotonic()
    code = end_of(start_command(arena.config, run))
    seconds = time.monotonic() - started
    answer = read_stderr(run)[said:]
    if code != 2:
        trial.blame("wrong", f"the second ended with {code}: {answer[-300:]}")
    if f"process {pid} on {socket.gethostname()}" not in answer:
        trial.blame("silent", f"the second did not name process and host of the first: {answer[-300:]}")
    if seconds > MOST_SECONDS:
        trial.blame("wrong", f"the second was refused after {seconds:.1f} seconds")
    trial.seen = f"refused in {seconds:.1f} s"
