"""A run at a glance: whether it is training, how far it has got, how good it is."""

import contextlib
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from mt.checkpoint.record import DamagedError
from mt.config.config import Config
from mt.config.explain import first_complaint
from mt.config.load import load_config
from mt.config.write import all_options
from mt.errors import ConfigError, RunError
from mt.reports.checkpoints import SavedCheckpoint, read_checkpoints, read_counters
from mt.run_directory import TRAIN_ONE, RunDirectory, as_run
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
    step: int | None
    """The step that it would resume from; for a run in training, the newest known step."""
    epochs: int | None
    """Complete passes over the training split."""
    num_target_tokens: int | None
    best_bleu: float | None
    """The highest of all validations, and the first step that had it."""
    best_bleu_step: int | None
    tokens_per_second: float | None
    age_seconds: int | None
    """Time since training last wrote metrics or a checkpoint."""
    num_bytes: int
    """Size of all its files."""
    seconds: float | None
    """Time of training and validation up to the newest point."""
    config: Config | None
    checkpoints: list[SavedCheckpoint]
    """From the oldest step to the newest, then the averages."""
    latest: SavedCheckpoint | None
    """The one to resume from."""
    best: SavedCheckpoint | None
    """The one to translate with; until a validation has marked one, the latest."""
    points: list[Point]
    """The curves, without figures that were not finite."""
    problems: list[str]


def series(points: Iterable[Point], kind: str, name: str) -> list[tuple[int, float]]:
    """Step and value of a metric in the points of one kind, by step, where it is known."""
    values = {p.step: p[name] for p in points if p.kind == kind and name in p.figures}
    return sorted(values.items())


def find_runs(paths: Iterable[Path]) -> list[RunDirectory]:
    """The runs among these folders, and those inside the others, without repetition."""
    runs: dict[Path, RunDirectory] = {}
    for path in paths:
        try:
            inside = [path] if is_run(path) else sorted(child for child in path.iterdir() if is_run(child))
        except OSError as error:
            raise RunError(f"Cannot list the runs in {path}: {error.strerror}. {TRAIN_ONE}") from error
        visible = [child for child in inside if child == path or not child.name.startswith(".")]
        if not visible:
            raise RunError(f"There is no run in {path}. {TRAIN_ONE}")
        for child in visible:
            # A link to a run is listed under its own name.
            named = as_run(child).path
            runs.setdefault(named.parent.resolve() / named.name, RunDirectory(child))
    return list(runs.values())


def is_run(path: Path) -> bool:
    """Whether a folder is a run, or the remains of one, even if its config is lost."""
    run = RunDirectory(path)
    return any(map(os.path.lexists, (run.config_file, run.checkpoints_dir, run.metrics_file)))


def summarise(run: RunDirectory, *, now: float) -> RunSummary:
    """Summarise a run, which may be training, or damaged in any way; ``now`` is in seconds since 1970."""
    problems: list[str] = []
    config = or_problem(problems, run.config_file, lambda: load_config(run.config_file))
    points = [
        replace(point, figures={name: y for name, y in point.figures.items() if not math.isnan(y)})
        for point in or_problem(problems, run.metrics_file, lambda: read_points(run.metrics_file)) or []
    ]
    newest = max(points, key=lambda point: point.step, default=None)
    checkpoints = read_checkpoints(run, problems)
    latest = next((checkpoint for checkpoint in checkpoints if checkpoint.is_latest), None)
    best = next((checkpoint for checkpoint in checkpoints if checkpoint.is_best), latest)
    counters = None
    if latest and (record := latest.record):
        counters = or_problem(problems, record.folder, lambda: read_counters(record))
    if checkpoints:
        tokenizers = run.src_tokenizer_file, run.tgt_tokenizer_file
        problems += [f"{file.name} is missing" for file in tokenizers if not file.is_file()]
    holder = run.holder()
    if newest and (holder or counters is None):
        counters = Counters(
            step=newest.step,
            epoch=int(newest.figures.get("epoch", 0)),
            num_target_tokens=int(newest.figures.get("num_target_tokens", 0)),
            owes_validation=True,  # Without a checkpoint it is not finished.
        )
    state, detail = _state(config, counters, holder, problems)
    scores = [(bleu, -step) for step, bleu in series(points, "validation", "bleu")]
    if not scores and best and best.record and "bleu" in best.record.metrics:
        scores = [(best.record.metrics["bleu"], -best.record.step)]
    speeds = [speed for _, speed in series(points, "train", "tokens_per_second")]
    return RunSummary(
        run,
        state,
        detail,
        step=counters.step if counters else None,
        epochs=counters.epoch if counters else None,
        num_target_tokens=counters.num_target_tokens if counters else None,
        best_bleu=max(scores)[0] if scores else None,
        best_bleu_step=-max(scores)[1] if scores else None,
        tokens_per_second=statistics.median(speeds[-_NUM_SPEEDS:]) if speeds else None,
        age_seconds=_age(run, now),
        num_bytes=_num_bytes(run.path),
        seconds=newest.figures.get("minutes", 0.0) * 60 if newest else None,
        config=config,
        checkpoints=checkpoints,
        latest=latest,
        best=best,
        points=points,
        problems=problems,
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


def _age(run: RunDirectory, now: float) -> int | None:
    files = run.metrics_file, run.config_file, run.checkpoints_dir
    times = [file.stat().st_mtime for file in files if file.exists()]
    return round(max(0.0, now - max(times))) if times else None


def _num_bytes(folder: Path) -> int:
    """The size of all files below a folder; links are not followed."""
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):  # Training removes old checkpoints.
                total += os.lstat(f"{parent}/{file}").st_size
    return total


def differing_options(configs: Mapping[str, Config]) -> dict[str, list[str]]:
    """The options that are not the same in all these configs, with their value in each config.

    Values are written as YAML, in the order of ``configs``.
    """
    options = [all_options(config) for config in configs.values()]
    rows = {key: [values[key] for values in options] for key in (options[0] if options else {})}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}
