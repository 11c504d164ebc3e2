"""A clock that goes backwards: nothing that decides what is resumed may look at it."""

import os
import random
import shutil
from pathlib import Path

from mt.run_directory import newest_run

from .processes import Driver
from .trial import Arena, Task, Trial, finish, judge, read_stderr

PHASE = "clock going backwards"


def clocks(arena: Arena, count: int, chance: random.Random) -> list[Task]:
    """Runs whose clock goes backwards, from the start, or a day after a kill; files with mixed up times."""
    steps = arena.points.count("begin step")
    return [
        whole_run,
        *[resumed_later(chance.randint(2, steps), mixed_up=number % 2 == 1) for number in range(count)],
        newest_of_two,
    ]


def whole_run(arena: Arena, driver: Driver) -> Trial:
    run = arena.new_run()
    trial = Trial(PHASE, "throughout a run")
    if driver.train(arena.config, run, clock="back"):
        trial.blame("lost", read_stderr(run)[-300:])
    else:
        judge(trial, arena, run)
    return trial


def resumed_later(step: int, *, mixed_up: bool) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(PHASE, f"after a kill at step {step}" + ", times of files mixed up" * mixed_up)
        driver.train(arena.config, run, point="begin step", occurrence=step, happens="kill")
        if mixed_up:
            set_times(run, {path: 1e9 - 1000 * n for n, path in enumerate(sorted(run.rglob("*")))})
        finish(trial, arena, driver, run, clock="back")
        return trial

    return task


def newest_of_two(arena: Arena, driver: Driver) -> Trial:
    """Within a run the newest checkpoint is the one of the last step, whatever the times of the files say."""
    trial = Trial(PHASE, "the newest run")
    runs = arena.new_run()
    for name, time in (("a", 1e9), ("b", 2e9)):
        run = Path(shutil.copytree(arena.unbroken, runs / name))
        records = sorted(run.glob("checkpoints/step_*/checkpoint.json"))
        set_times(run, {path: time - 1000 * n for n, path in enumerate(records)})
    if newest_run(runs).path.name != "b":
        trial.blame("wrong", "the newest run is not the one that was saved last")
    return trial


def set_times(run: Path, times: dict[Path, float]) -> None:
    """Let files look as if they had been written then."""
    for path, seconds in times.items():
        os.utime(path, (seconds, seconds))
