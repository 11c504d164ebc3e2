"""Signals in every phase of a run: the right exit code, all of it saved, and the end of the unbroken run."""

import random
import re
import signal
import time

from .processes import Driver, end_of, start_command
from .trial import Arena, Task, Trial, check_loud, check_readable, finish, newest_step, read_stderr

PHASE, AT_ONCE = "signals", "signals while it starts"
POINTS = (
    "begin loading",
    "end loading",
    "begin step",
    "begin validation",
    "begin translating",
    "end validation",
    "before mkdir checkpoints/.step.partial",
    "before fsync checkpoints/.step.partial/model.safetensors",
    "before rename checkpoints/.step.partial -> checkpoints/step",
    "before replace checkpoints/.latest.partial -> checkpoints/latest",
    "before unlink checkpoints/.step.partial/model.safetensors",
)
CODES = {
    "SIGTERM": 143,
    "SIGINT": 130,
    "SIGHUP": 129,
    "SIGUSR1": 128 + signal.SIGUSR1,
    "SIGINT SIGINT": 130,
    "SIGTERM SIGINT": 130,
}


def signals(arena: Arena, chance: random.Random, most: int | None = None) -> list[Task]:
    """Each signal, and the two that end a run at once, at each of `POINTS`."""
    cases = [(point, names) for point in POINTS for names in CODES]
    if most is not None:
        cases = chance.sample(cases, most)
    during = [
        send_signal(point, chance.randint(1, arena.points.count(point)), names) for point, names in cases
    ]
    starting = [signal_while_starting(name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1")]
    return during + (starting if most is None else starting[:1])


def send_signal(point: str, occurrence: int, names: str) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(PHASE, f"{names}: {point}, time {occurrence}")
        code = driver.train(arena.config, run, point=point, occurrence=occurrence, happens=names)
        was_last = "Finished: " in read_stderr(run)
        saying = "" if " " in names or was_last else "Stopped at step|before the first step"
        # Of two signals, the first may have ended the run before the second came.
        expected = {CODES[names], CODES[names.split()[0]]}
        check_loud(trial, run, code, expected={0} if was_last else expected, saying=saying)
        stopped = re.search(r"Stopped at step ([\d,]+), saved", read_stderr(run))
        if stopped and int(stopped[1].replace(",", "")) != newest_step(run):
            trial.blame("lost", f"said {stopped[0]!r}, but the newest saved is step {newest_step(run)}")
        check_readable(trial, run)
        finish(trial, arena, driver, run)
        return trial

    return task


def signal_while_starting(name: str) -> Task:
    """While Python imports, before anything is set up: the system's own answer is right, which is to end."""

    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(AT_ONCE, name)
        number = signal.Signals[name]
        process = start_command(arena.config, run)
        time.sleep(0.7)
        process.send_signal(number)
        code = end_of(process)
        if code not in (-number, 128 + number):
            trial.blame("wrong", f"exit code {code}")
        finish(trial, arena, driver, run)
        return trial

    return task
