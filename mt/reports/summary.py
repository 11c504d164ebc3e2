"""A run at a glance: whether it is training, how far it has got, how good it is."""

import contextlib
import os
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from mt.checkpoint.record import DamagedError
from mt.config.config import Config
from mt.config.explain import first_complaint
from mt.config.load import load_config
from mt.config.write import all_options
from mt.errors import ConfigError, RunError
from mt.reports.checkpoints import Checkpoints, read_checkpoints, read_counters
from mt.reports.curves import Curves, read_curves
from mt.run_directory import TRAIN_ONE, RunDirectory, as_run
from mt.training.counters import Counters
from mt.training.metrics_file import Point

T = TypeVar("T")
State = Literal["running", "stopped", "finished", "damaged"]

# Speed is the median of this many points of the curve, because single points can be slow on a busy machine.
_NUM_SPEEDS = 20


@dataclass(frozen=True)
class RunSummary:
    """A run in one line; what is unknown is None."""

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
    best_bleu_step: int | None
    tokens_per_second: float | None
    age_seconds: float | None
    """Time since training last wrote metrics or a checkpoint."""
    num_bytes: int
    """Size of all its files."""
    config: Config | None


def find_runs(paths: Iterable[Path]) -> list[RunDirectory]:
    """The runs among these folders, and those inside the others, without repetition."""
    found: dict[Path, RunDirectory] = {}
    for path in paths:
        for run in [RunDirectory(path)] if is_run(path) else _runs_inside(path):
            path = as_run(run).path
            # A link to a run is listed under its own name.
            found.setdefault(path.parent.resolve() / path.name, run)
    return list(found.values())


def _runs_inside(folder: Path) -> list[RunDirectory]:
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise RunError(f"Cannot list the runs in {folder}: {error.strerror}. {TRAIN_ONE}") from error
    runs = [RunDirectory(child) for child in children if not child.name.startswith(".") and is_run(child)]
    if not runs:
        raise RunError(f"There is no run in {folder}. {TRAIN_ONE}")
    return runs


def is_run(path: Path) -> bool:
    """Whether a folder is a run, or the remains of one, even if its config is lost."""
    run = RunDirectory(path)
    return any(map(os.path.lexists, (run.config_file, run.checkpoints_dir, run.metrics_file)))


def summarise(run: RunDirectory, *, now: float) -> RunSummary:
    """Summarise a run, which may be training, or damaged in any way.

    Args:
        run: The run.
        now: The time, in seconds since 1970.
    """
    problems: list[str] = []
    config = or_problem(problems, run.config_file.name, lambda: load_config(run.config_file), None)
    checkpoints = read_checkpoints(run, pointed_at_only=True)
    curves = or_problem(
        problems,
        run.metrics_file.name,
        lambda: read_curves(run.metrics_file, num_train=_NUM_SPEEDS),
        Curves([], []),
    )
    return summary_of(run, config, checkpoints, curves, problems, now=now)


def summary_of(
    run: RunDirectory,
    config: Config | None,
    checkpoints: Checkpoints,
    curves: Curves,
    problems: list[str],
    *,
    now: float,
) -> RunSummary:
    """The summary of a run whose parts have been read, including any problems found."""
    problems = list(problems)
    counters = _counters_of(checkpoints, problems)
    if checkpoints.problem is not None:
        problems.append(checkpoints.problem)
    if checkpoints.found:
        problems += [f"{file.name} is missing" for file in _tokenizers(run) if not file.is_file()]
    holder = run.holder()
    newest, best = curves.newest, curves.best("bleu")
    if newest is not None and (holder or counters is None):
        counters = _position(newest, None if holder else checkpoints)
    if best is None and checkpoints.best and (record := checkpoints.best.record):
        best = (record.metrics["bleu"], record.step) if "bleu" in record.metrics else None
    state, detail = _state(config, counters, holder, problems)
    speeds = [point["tokens_per_second"] for point in curves.train if "tokens_per_second" in point.figures]
    return RunSummary(
        run,
        state,
        detail,
        counters.step if counters else None,
        counters.epoch if counters else None,
        counters.num_target_tokens if counters else None,
        best[0] if best else None,
        best[1] if best else None,
        statistics.median(speeds[-_NUM_SPEEDS:]) if speeds else None,
        _age(run, checkpoints, now),
        _num_bytes(run.path),
        config,
    )


def or_problem(problems: list[str], name: str, reader: Callable[[], T], otherwise: T) -> T:
    """What ``reader`` returns; if it cannot, ``otherwise``, and a sentence is added to ``problems``.

    Args:
        problems: What is wrong with the run.
        name: The name of the file in the run directory.
        reader: Reads the file.
        otherwise: What to return if it cannot be used.
    """
    try:
        return reader()
    except FileNotFoundError:
        problems.append(f"{name} is missing")
    except OSError as error:
        problems.append(f"{name} cannot be read: {error.strerror}")
    except ValidationError as error:
        problems.append(f"{name} is not what training wrote: {first_complaint(error)}")
    except ConfigError as error:
        problems.append(error.message.split("\n", 1)[0])
    except DamagedError as error:
        problems.append(f"{name}: {error.message}")
    return otherwise


def _counters_of(checkpoints: Checkpoints, problems: list[str]) -> Counters | None:
    latest = checkpoints.latest
    record = latest.record if latest else None
    if latest is None or record is None:
        return None
    return or_problem(problems, f"checkpoints/{latest.name}", lambda: read_counters(record), None)


def _tokenizers(run: RunDirectory) -> tuple[Path, Path]:
    return run.src_tokenizer_file, run.tgt_tokenizer_file


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


def _position(newest: Point, checkpoints: Checkpoints | None) -> Counters:
    """Where a run is by its newest metrics; ``checkpoints`` are those that it would resume from.

    This is for a run in training, and for one without a checkpoint.
    """
    latest = checkpoints.latest if checkpoints else None
    return Counters(
        step=latest.record.step if latest and latest.record else newest.step,
        epoch=int(newest.figures.get("epoch", 0)),
        num_target_tokens=int(newest.figures.get("num_target_tokens", 0)),
        seconds=newest.figures.get("minutes", 0.0) * 60,
        # Without a checkpoint it is not finished.
        owes_validation=latest is None,
    )


def _age(run: RunDirectory, checkpoints: Checkpoints, now: float) -> float | None:
    times = [each.written for each in checkpoints.found if each.written]
    for file in (run.metrics_file, run.config_file):
        with contextlib.suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(0.0, now - max(times)) if times else None


def _num_bytes(folder: Path) -> int:
    """The size of all files below a folder; links are not followed."""
    total = 0
    folders = [os.fspath(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def differing_options(configs: Mapping[str, Config]) -> dict[str, list[str]]:
    """The options that are not the same in all these configs, with their value in each config.

    Values are written as YAML, in the order of ``configs``.
    """
    options = [all_options(config) for config in configs.values()]
    rows = {key: [each[key] for each in options] for key in (options[0] if options else {})}
    return {key: values for key, values in rows.items() if len(set(values)) > 1}
