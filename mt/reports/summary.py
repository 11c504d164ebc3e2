"""A run at a glance: whether it is training, how far it has got, how good it is."""

import contextlib
import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from mt.checkpoint.record import DamagedError
from mt.config.config import Config
from mt.config.explain import first_complaint
from mt.config.load import load_config
from mt.config.write import all_options
from mt.errors import ConfigError, Remedy, RunError
from mt.reports.checkpoints import Checkpoints, read_checkpoints, read_counters
from mt.run_directory import RunDirectory, as_run
from mt.training.counters import Counters
from mt.training.metrics_file import Point, read_points

T = TypeVar("T")
State = Literal["running", "stopped", "finished", "damaged"]

# Speed is the median of this many points of the curve, because single points can be slow on a busy machine.
_NUM_SPEEDS = 20


@dataclass(frozen=True)
class RunSummary:
    """What the files of training say about a run; what is unknown is None or empty."""

    run: RunDirectory
    state: State
    detail: str | None
    """Which process is training, why the run is finished, or what is damaged."""
    config: Config | None
    checkpoints: Checkpoints
    train: list[Point]
    """The points of the training curve, by step."""
    validation: list[Point]
    """Those of validation."""
    counters: Counters | None
    """Where it would resume; for a run in training, the newest known position."""
    age_seconds: float | None
    """Time since training last wrote metrics or a checkpoint."""
    problems: list[str]

    @property
    def best_bleu(self) -> tuple[float, int] | None:
        """The highest BLEU of all validations, and the first step that had it."""
        scores = [(score, -step) for step, score in series(self.validation, "bleu")]
        if scores:
            score, minus_step = max(scores)
            return score, -minus_step
        record = self.checkpoints.best.record if self.checkpoints.best else None
        return (record.metrics["bleu"], record.step) if record and "bleu" in record.metrics else None

    @property
    def tokens_per_second(self) -> float | None:
        """The speed of training, in target tokens."""
        speeds = [speed for _, speed in series(self.train, "tokens_per_second")]
        return statistics.median(speeds[-_NUM_SPEEDS:]) if speeds else None

    @property
    def seconds(self) -> float | None:
        """Time of training and validation up to the newest point."""
        newest = _newest(self.train, self.validation)
        return newest.figures.get("minutes", 0.0) * 60 if newest else None

    @cached_property
    def num_bytes(self) -> int:
        """The size of all files of the run."""
        return sum(_sizes(self.run.path))


def series(points: Iterable[Point], name: str) -> list[tuple[int, float]]:
    """Step and value of one metric, where it is known."""
    return [(point.step, point[name]) for point in points if name in point.figures]


def find_runs(paths: Iterable[Path]) -> list[RunDirectory]:
    """The runs among these folders, and those inside the others, without repetition."""
    runs: dict[Path, RunDirectory] = {}
    for path in paths:
        for run in [RunDirectory(path)] if is_run(path) else _runs_inside(path):
            path = as_run(run).path
            # A link to a run is listed under its own name.
            runs.setdefault(path.parent.resolve() / path.name, run)
    return list(runs.values())


def _runs_inside(folder: Path) -> list[RunDirectory]:
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise RunError(f"Cannot list the runs in {folder}: {error.strerror}.", Remedy.TRAIN_ONE) from error
    runs = [RunDirectory(child) for child in children if not child.name.startswith(".") and is_run(child)]
    if not runs:
        raise RunError(f"There is no run in {folder}.", Remedy.TRAIN_ONE)
    return runs


def is_run(path: Path) -> bool:
    """Whether a folder is a run, or the remains of one, even if its config is lost."""
    run = RunDirectory(path)
    return any(map(os.path.lexists, (run.config_file, run.checkpoints_dir, run.metrics_file)))


def summarise(run: RunDirectory, *, now: float) -> RunSummary:
    """Summarise a run, which may be training, or damaged in any way; ``now`` is in seconds since 1970."""
    problems: list[str] = []
    config = or_problem(problems, run.config_file, lambda: load_config(run.config_file))
    points = or_problem(problems, run.metrics_file, lambda: read_points(run.metrics_file)) or []
    train, validation = _by_step(points, "train"), _by_step(points, "validation")
    checkpoints = read_checkpoints(run)
    counters = None
    if checkpoints.latest and (record := checkpoints.latest.record):
        counters = or_problem(problems, record.folder, lambda: read_counters(record))
    if checkpoints.problem is not None:
        problems.append(checkpoints.problem)
    if checkpoints.saved:
        tokenizers = run.src_tokenizer_file, run.tgt_tokenizer_file
        problems += [f"{file.name} is missing" for file in tokenizers if not file.is_file()]
    holder, newest = run.holder(), _newest(train, validation)
    if newest and (holder or counters is None):
        counters = _position(newest)
        if not holder and checkpoints.latest and checkpoints.latest.record:
            counters = replace(counters, step=checkpoints.latest.record.step, owes_validation=False)
    state, detail = _state(config, counters, holder, problems)
    return RunSummary(
        run, state, detail, config, checkpoints, train, validation, counters, _age(run, now), problems
    )


def or_problem(problems: list[str], file: Path, reader: Callable[[], T]) -> T | None:
    """What ``reader`` reads from the file; if it cannot, None, and a sentence is added to ``problems``."""
    try:
        return reader()
    except FileNotFoundError:
        problems.append(f"{file.name} is missing")
    except OSError as error:
        problems.append(f"{file.name} cannot be read: {error.strerror}")
    except ValidationError as error:
        problems.append(f"{file.name} is not what training wrote: {first_complaint(error)}")
    except ConfigError as error:
        problems.append(error.message.split("\n", 1)[0])
    except DamagedError as error:
        problems.append(f"{file.name}: {error.message}")
    return None


def _by_step(points: Iterable[Point], kind: str) -> list[Point]:
    """The points of one kind, without figures that were not finite."""
    by_step = {
        point.step: replace(
            point, figures={name: y for name, y in point.figures.items() if not math.isnan(y)}
        )
        for point in points
        if point.kind == kind
    }
    return [by_step[step] for step in sorted(by_step)]


def _newest(*curves: list[Point]) -> Point | None:
    return max((points[-1] for points in curves if points), key=lambda point: point.step, default=None)


def _position(newest: Point) -> Counters:
    """Where a run is by its newest metrics: one in training, or one without a checkpoint."""
    return Counters(
        step=newest.step,
        epoch=int(newest.figures.get("epoch", 0)),
        num_target_tokens=int(newest.figures.get("num_target_tokens", 0)),
        seconds=newest.figures.get("minutes", 0.0) * 60,
        # Without a checkpoint it is not finished.
        owes_validation=True,
    )


def _state(
    config: Config | None, counters: Counters | None, holder: str | None, problems: list[str]
) -> tuple[State, str | None]:
    if holder is not None:
        # Its files may be in the middle of a change.
        return "running", holder
    if problems or config is None:
        return "damaged", "; ".join(problems)
    if counters is not None and not counters.owes_validation:
        limit = counters.reached_limit(config.training, config.validation)
        if limit is not None:
            return "finished", limit
    return "stopped", None


def _age(run: RunDirectory, now: float) -> float | None:
    times = []
    for file in (run.metrics_file, run.config_file, run.checkpoints_dir):
        with contextlib.suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(0.0, now - max(times)) if times else None


def _sizes(folder: Path) -> Iterator[int]:
    """The size of each file below a folder; links are not followed."""
    for parent, _, files in os.walk(folder):
        for file in files:
            # Training removes old checkpoints.
            with contextlib.suppress(OSError):
                yield (Path(parent) / file).lstat().st_size


def differing_options(configs: Mapping[str, Config]) -> dict[str, list[str]]:
    """The options that are not the same in all these configs, with their value in each config.

    Values are written as YAML, in the order of ``configs``.
    """
    options = [all_options(config) for config in configs.values()]
    rows = {key: [values[key] for values in options] for key in (options[0] if options else {})}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}
