"""kill -9, at random moments of the real command, and at every point of a run that changes the disk."""

import random
import time
from pathlib import Path
from subprocess import Popen

from .processes import LONGEST_SECONDS, Driver, end_of, start_command
from .trial import Arena, Task, Trial, finish, newest_step

RANDOM, NAMED = "kill -9 at random moments", "kill -9 at named points"


def random_kills(arena: Arena, count: int, chance: random.Random) -> list[Task]:
    """Kills of ``mt train`` spread from its first second to its end; each third run is killed twice."""
    sitting, waiting = _time_one_session(arena)
    tasks: list[Task] = []
    for number in range(count):
        moments = [(number + chance.random()) / count] + [chance.random()] * (number % 3 == 2)
        tasks.append(_random_kill(moments, sitting, waiting))
    return tasks


def named_kills(arena: Arena, chance: random.Random, most: int | None = None) -> list[Task]:
    """One kill at each point that a run passes, at one of the times that it does."""
    points = sorted(set(arena.points))
    if most is not None:
        points = chance.sample(points, most)
    tasks = []
    for point in points:
        happens = ["kill"]
        is_folder = point.endswith(("checkpoints", ".step.partial"))
        # The metrics and the samples have lines of earlier checkpoints, which stay.
        if point.startswith("before fsync") and ".partial" in point and not is_folder:
            happens.append("half")
        tasks += [named_kill(point, chance.randint(1, arena.points.count(point)), how) for how in happens]
    return tasks


def _time_one_session(arena: Arena) -> tuple[float, float]:
    """Seconds that the real command takes, and how many of them pass before it looks at the run directory."""
    run = arena.new_run()
    started = time.monotonic()
    process = start_command(arena.config, run)
    waiting = _wait_for(process, run, started) - started
    if end_of(process):
        raise SystemExit(f"the real command failed; see {run.with_suffix('.stderr')}")
    return time.monotonic() - started, waiting


def _wait_for(process: Popen[str], run: Path, since: float) -> float:
    """When the process had made its run directory, or had ended."""
    while (
        not (run / "lock").exists() and process.poll() is None and time.monotonic() < since + LONGEST_SECONDS
    ):
        time.sleep(0.005)
    return time.monotonic()


def _random_kill(moments: list[float], sitting: float, waiting: float) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(RANDOM, "at " + " and ".join(f"{moment:.0%}" for moment in moments))
        for moment in moments:
            while not _kill_at(moment, arena, run, sitting, waiting):
                # It was faster than was expected: again, a little earlier.
                moment *= 0.8
                run = arena.new_run()
            trial.seen = _what_it_was_doing(run)
        finish_by_command(trial, arena, run)
        return trial

    return task


def _kill_at(moment: float, arena: Arena, run: Path, sitting: float, waiting: float) -> bool:
    """Start the command and kill it at that share of its time; False if it had ended.

    One tenth of the shares falls into Python's start, from the first second on, and the rest behind it.
    """
    started = time.monotonic()
    process = start_command(arena.config, run)
    if moment < 0.1:
        time.sleep(1 + moment / 0.1 * (waiting - 1))
    else:
        # Other work on this machine slows the rest down as it did the start.
        slowness = (_wait_for(process, run, started) - started) / waiting
        time.sleep((moment - 0.1) / 0.9 * (sitting - waiting) * slowness)
    process.kill()
    return process.wait() == -9


def _what_it_was_doing(run: Path) -> str:
    if any(path.name.startswith(".") for path in run.rglob("*")):
        return "writing a file"
    if newest_step(run):
        return "between two saves"
    return "before the first save" if (run / "corpus.json").exists() else "loading"


def named_kill(point: str, occurrence: int, happens: str) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(NAMED, f"{point}, time {occurrence}" + ", half of it written" * (happens == "half"))
        code = driver.train(arena.config, run, point=point, occurrence=occurrence, happens=happens)
        if code != -9:
            trial.blame("wrong", f"was not killed but ended with {code}")
        trial.seen = _what_it_was_doing(run)
        finish(trial, arena, driver, run)
        return trial

    return task


def finish_by_command(trial: Trial, arena: Arena, run: Path) -> None:
    """Finish as a user does, with the real command."""
    finish(trial, arena, CommandDriver(), run)


class CommandDriver(Driver):
    """Runs the real command where a driver would fork."""

    def train(self, config: Path, run: Path, **fate: object) -> int:
        """Train as a user does."""
        assert not fate
        return end_of(start_command(config, run))
