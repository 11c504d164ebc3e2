"""One trial: something happens to a run, the same command is given again, and the end is judged."""

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mt.checkpoint.store import CheckpointStore
from mt.errors import CheckpointError

from .arena import Fingerprint, fingerprint, write_arena
from .processes import Driver

Kind = Literal["different", "left over", "lost", "loaded", "silent", "wrong"]


@dataclass
class Trial:
    """What was tried, and what went wrong."""

    phase: str
    name: str
    problems: list[tuple[Kind, str]] = field(default_factory=list)
    num_damaged: int = 0
    """Damaged checkpoints that were offered."""
    seen: str = ""
    """What the run was doing when it was hit, where that can be told."""

    def blame(self, kind: Kind, text: str) -> None:
        """Note a problem."""
        self.problems.append((kind, text))


@dataclass(frozen=True)
class Arena:
    """Where runs are tortured, and the run that nothing happened to."""

    folder: Path
    config: Path
    unbroken: Path
    fingerprint: Fingerprint
    points: list[str]
    """Each point that the unbroken run passed, in order."""

    def new_run(self) -> Path:
        """The path of a run that is not there yet."""
        return Path(tempfile.mkdtemp(dir=self.folder)) / "run"


Task = Callable[[Arena, Driver], Trial]


def make_arena(folder: Path, driver: Driver, *, steps: int) -> Arena:
    """Train the unbroken run, and note the points that it passes."""
    config = write_arena(folder, steps=steps)
    unbroken = folder / "unbroken"
    points = folder / "points"
    code = driver.train(config, unbroken, record=str(points))
    if code:
        raise SystemExit(f"the unbroken run ended with {code}:\n{read_stderr(unbroken)}")
    return Arena(folder, config, unbroken, fingerprint(unbroken), points.read_text().splitlines())


def read_stderr(run: Path) -> str:
    """What all sessions of a run have said so far."""
    return run.with_suffix(".stderr").read_text(encoding="utf-8", errors="replace")


def newest_step(run: Path) -> int:
    """The step of the newest checkpoint by name, 0 where there is none."""
    steps = [int(path.name.removeprefix("step_")) for path in run.glob("checkpoints/step_*")]
    return max(steps, default=0)


def finish(trial: Trial, arena: Arena, driver: Driver, run: Path, **fate: str) -> None:
    """Give the same command again; it must go on from the newest checkpoint and end as the unbroken run."""
    saved, said = newest_step(run), len(read_stderr(run)) if run.with_suffix(".stderr").exists() else 0
    code = driver.train(arena.config, run, **fate)
    answer = read_stderr(run)[said:]
    if code:
        trial.blame("lost", f"could not be resumed (exit code {code}): {answer[-300:]}")
        return
    resumed = re.search(r"resuming .* from step ([\d,]+)", answer)
    began = int(resumed[1].replace(",", "")) if resumed else 0
    if began < saved and "is finished" not in answer:
        trial.blame("lost", f"went on from step {began}, though step {saved} was saved")
    judge(trial, arena, run)


def judge(trial: Trial, arena: Arena, run: Path) -> None:
    """Compare a finished run with the unbroken one."""
    found = fingerprint(run)
    for name in found.differences(arena.fingerprint):
        if name != "files":
            trial.blame("different", f"{name} differ from those of the unbroken run")
    for file in sorted(found.files - arena.fingerprint.files):
        trial.blame("left over", f"{file} is left over")
    for file in sorted(arena.fingerprint.files - found.files):
        trial.blame("lost", f"{file} is missing")


def check_readable(trial: Trial, run: Path) -> None:
    """Whoever translates meanwhile must find every checkpoint sound that is there, and the pointers right."""
    store = CheckpointStore(run / "checkpoints")
    names = store.names()
    try:
        for name in [*names, "latest"] if (store.directory / "latest").exists() else names:
            checkpoint = store.require(name)
            store.load_model(checkpoint)
            store.load_training_state(checkpoint)
    except CheckpointError as error:
        trial.blame("lost", str(error))


def check_loud(
    trial: Trial, run: Path, code: int, *, expected: set[int], saying: str, since: int = 0
) -> None:
    """A run that ends must say why, in a sentence (behind character ``since``) and by its exit code."""
    text = read_stderr(run)[since:]
    if code not in expected:
        wanted = " or ".join(map(str, sorted(expected)))
        trial.blame("wrong", f"exit code {code} instead of {wanted}: {text[-300:]}")
    if not re.search(saying, text):
        trial.blame("silent", f"did not say {saying!r}: {text[-300:]}")
    if "Traceback" in text:
        trial.blame("wrong", f"a traceback: {text[text.index('Traceback') :][-600:]}")
