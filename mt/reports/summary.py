"""A run at a glance, for `mt runs`: whether it is training, how far it has got, how good it is.

A run may be training, or damaged in any way: what cannot be read is None or empty, and named in the problems.
"""

import math
import os
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from mt.checkpoint.directory import BEST, LATEST, CheckpointDirectory
from mt.checkpoint.record import DamagedError
from mt.config.config import Config
from mt.config.explain import first_complaint
from mt.config.load import load_config
from mt.errors import ConfigError
from mt.reports.checkpoints import SavedCheckpoint, inspect_checkpoint, num_bytes, read_counters
from mt.run_directory import RunDirectory
from mt.training.counters import Counters
from mt.training.metrics_file import Point, read_points

T = TypeVar("T")
State = Literal["running", "stopped", "finished", "damaged"]


@dataclass(frozen=True)
class RunSummary:
    """What `mt runs` shows."""

    run: RunDirectory
    state: State
    detail: str | None
    """Which process is training, why the run is finished, or what is damaged."""
    step: int | None
    """The step that it would resume from; for a run in training, the newest known step."""
    epochs: int | None
    num_target_tokens: int | None
    best_bleu: float | None
    """The highest of all validations, and the first step that had it."""
    best_bleu_step: int | None
    tokens_per_second: float | None
    age_seconds: int | None
    """Time since training last wrote metrics or a checkpoint."""
    num_bytes: int
    seconds: float | None
    """Time of training and validation up to the newest point."""
    config: Config | None
    latest: SavedCheckpoint | None
    best: SavedCheckpoint | None
    """The one to translate with; until a validation has marked one, the latest."""
    points: list[Point]
    problems: list[str]


def written(number: float | None, form: str) -> str:
    """The number in this format; ``unknown`` if it is None."""
    return "unknown" if number is None else form.format(number)


def short_count(number: float) -> str:
    """A number with about three digits, such as ``950``, ``12.3k`` and ``2.32M``."""
    rounded = float(f"{number:.3g}")
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rounded >= unit:
            return f"{rounded / unit:,g}{name}"
    return f"{rounded:g}"


def short_duration(seconds: float) -> str:
    """A duration in the largest fitting unit, such as ``40 s``, ``12 min``, ``5 h`` or ``31 d``."""
    for limit, unit, name in ((60, 1, "s"), (3600, 60, "min"), (48 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds // 86400:,.0f} d"


def series(points: Iterable[Point], kind: str, name: str) -> list[tuple[int, float]]:
    """Step and value of a metric in the points of one kind, by step, where it is finite."""
    values = {p.step: p[name] for p in points if p.kind == kind and name in p.figures}
    return sorted((step, value) for step, value in values.items() if math.isfinite(value))


def summarise(run: RunDirectory, *, now: float) -> RunSummary:
    """Summarise a run; ``now`` is in seconds since 1970."""
    problems: list[str] = []
    config = or_problem(problems, run.config_file, lambda: load_config(run.config_file))
    points = or_problem(problems, run.metrics_file, lambda: read_points(run.metrics_file)) or []
    latest, best = _pointed_at(CheckpointDirectory(run.checkpoints_dir), problems)
    counters = None
    if latest:
        if (record := latest.record) is not None:
            counters = or_problem(problems, record.folder, lambda: read_counters(record))
        tokenizers = run.src_tokenizer_file, run.tgt_tokenizer_file
        problems += [f"{file.name} is missing" for file in tokenizers if not file.is_file()]
    newest = {name: value for p in points for name, value in p.figures.items() if math.isfinite(value)}
    holder = run.holder()
    step, epochs, num_tokens = None, None, None
    if points and (holder or counters is None):
        step = max(point.step for point in points)
        epochs, num_tokens = (int(newest.get(name, 0)) for name in ("epoch", "num_target_tokens"))
    elif counters is not None:
        step, epochs, num_tokens = counters.step, counters.epoch, counters.num_target_tokens
    state, detail = _state(config, counters, holder, problems)
    scores = series(points, "validation", "bleu")
    if not scores and best and best.record and "bleu" in best.record.metrics:
        scores = [(best.record.step, best.record.metrics["bleu"])]
    # The first of equal ones.
    bleu_step, bleu = max(scores, key=lambda point: point[1], default=(None, None))
    speeds = [speed for _, speed in series(points, "train", "tokens_per_second")]
    files = [file for file in (run.metrics_file, run.config_file, run.checkpoints_dir) if file.exists()]
    age = now - max((file.stat().st_mtime for file in files), default=math.nan)
    return RunSummary(
        run,
        state,
        detail,
        step=step,
        epochs=epochs,
        num_target_tokens=num_tokens,
        best_bleu=bleu,
        best_bleu_step=bleu_step,
        # The median, because single points can be slow on a busy machine.
        tokens_per_second=statistics.median(speeds[-20:]) if speeds else None,
        age_seconds=round(max(0.0, age)) if files else None,
        num_bytes=num_bytes(run.path),
        seconds=newest.get("minutes", 0.0) * 60 if points else None,
        config=config,
        latest=latest,
        best=best,
        points=points,
        problems=problems,
    )


def _state(
    config: Config | None, counters: Counters | None, holder: str | None, problems: list[str]
) -> tuple[State, str | None]:
    if holder:
        # Its files may be in the middle of a change.
        return "running", holder
    if problems or config is None:
        return "damaged", "; ".join(problems)
    if counters is None or counters.owes_validation:
        return "stopped", None
    limit = counters.reached_limit(config.training, config.validation)
    return ("finished" if limit else "stopped"), limit


def _pointed_at(
    store: CheckpointDirectory, problems: list[str]
) -> tuple[SavedCheckpoint | None, SavedCheckpoint | None]:
    """The latest checkpoint and the best one, if there are any."""
    for pointer in (LATEST, BEST):
        if store.pointer(pointer) is None and os.path.lexists(store.directory / pointer):
            problems.append(f"checkpoints/{pointer} does not name a checkpoint")
    # A process that was killed between writing the first checkpoint and the pointer has left no pointer.
    latest = store.pointer(LATEST) or next(reversed(store.names()), None)
    if latest is None:
        return None, None
    best = store.pointer(BEST) or latest
    saved = {name: inspect_checkpoint(store.directory / name) for name in (best, latest)}
    problems += [f"checkpoints/{name}: {one.problem}" for name, one in saved.items() if one.problem]
    return saved[latest], saved[best]


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
    except DamagedError as error:
        problems.append(f"{file.name}: {error.message}")
    except ConfigError as error:
        problems.append(error.message.split("\n", 1)[0])
    return None
