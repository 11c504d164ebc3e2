"""stderr is lost while a run trains: nobody reads the pipe, the terminal is closed, the device is full."""

import contextlib
import json
import os
import pty
import random
import termios
import threading
from pathlib import Path

from .processes import Driver, end_of, start_command
from .trial import Arena, Task, Trial, judge

PHASE = "stderr lost"
KINDS = ("a pipe is closed", "a terminal is closed", "a device is full")
# Of what a run says, in bytes, more or less.
MOST_READ = 4000


def lost_displays(count: int, chance: random.Random) -> list[Task]:
    """Each kind in turn, after so many bytes were read; the device is full from the beginning."""
    return [lose_display(KINDS[number % len(KINDS)], chance.randint(0, MOST_READ)) for number in range(count)]


def lose_display(kind: str, num_bytes: int) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        full = kind == "a device is full"
        trial = Trial(PHASE, kind if full else f"{kind} after {num_bytes} bytes")
        ours, theirs = (None, os.open("/dev/full", os.O_WRONLY)) if full else _display(kind)
        process = start_command(arena.config, run, theirs)
        os.close(theirs)
        if ours is not None:
            reader = threading.Thread(target=_read_and_close, args=(ours, num_bytes))
            reader.start()
        code = end_of(process)
        if ours is not None:
            reader.join()
        if code:
            trial.blame("lost", f"ended with {code}")
            return trial
        _check_log(trial, arena, run)
        judge(trial, arena, run)
        return trial

    return task


def _display(kind: str) -> tuple[int, int]:
    """The reader's end and the writer's."""
    if kind == "a pipe is closed":
        return os.pipe()
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    return ours, theirs


def _read_and_close(descriptor: int, num_bytes: int) -> None:
    # Linux says by an error that nobody has the other end of a terminal any more.
    with contextlib.suppress(OSError):
        while num_bytes > 0 and (read := os.read(descriptor, num_bytes)):
            num_bytes -= len(read)
    os.close(descriptor)


def _check_log(trial: Trial, arena: Arena, run: Path) -> None:
    """Every step once, and the end of the run in its own log."""
    of_training, of_unbroken = (
        [line["step"] for line in map(json.loads, (path / "metrics.jsonl").read_text().splitlines())]
        for path in (run, arena.unbroken)
    )
    if of_training != of_unbroken:
        trial.blame("lost", f"steps {sorted(set(of_unbroken) - set(of_training))} are not in metrics.jsonl")
    if "Finished: " not in (run / "train.log").read_text(encoding="utf-8"):
        trial.blame("silent", "train.log does not say that the run is finished")
