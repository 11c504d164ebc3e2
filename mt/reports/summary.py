"""A run at a glance, for `mt runs`: whether it is training, how far it has got, how good it is.

A run may be training, or damaged in any way: what cannot be read is None or empty, and named in the problems.
"""

import math
import os
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from mt.checkpoint.directory import BEST, LATEST, CheckpointDirectory
from mt.checkpoint.record import DamagedError
from mt.config.explain import first_complaint
from mt.config.load import load_config
from mt.errors import ConfigError
from mt.reports.checkpoints import SavedCheckpoint, inspect_checkpoint, num_bytes, read_counters
from mt.run_directory import RunDirectory
from mt.training.counters import Counters
from mt.training.metrics_file import Point, read_points

T = TypeVar("T")
State = Literal["running", "stopped", "finished", "damaged", "imported"]


class RunSummary:
    """What `mt runs` shows of a run, read when this is created; ``now`` is in seconds since 1970."""

    def __init__(self, run: RunDirectory, *, now: float) -> None:
        self.run = run
        self.problems: list[str] = []
        self.config = self.read(run.config_file, lambda: load_config(run.config_file))
        self.points = self.read(run.metrics_file, lambda: read_points(run.metrics_file)) or []
        # What to resume from, and what to translate with: until a validation has marked one, the latest.
        self.latest, self.best = self._pointed_at()
        counters, holder = self._counters(), run.holder()
        self.state, self.detail = self._state(counters, holder)
        newest = {name: x for point in self.points for name, x in point.figures.items() if math.isfinite(x)}
        # Where it would resume; for a run in training, the newest known step.
        self.step: int | None = None
        self.epochs: int | None = None
        self.num_target_tokens: int | None = None
        if self.points and (holder or counters is None):
            self.step = max(point.step for point in self.points)
            self.epochs, self.num_target_tokens = (
                int(newest.get(name, 0)) for name in ("epoch", "num_target_tokens")
            )
        elif counters is not None:
            self.step, self.epochs = counters.step, counters.epoch
            self.num_target_tokens = counters.num_target_tokens
        # Of training and validation, up to the newest point.
        self.seconds = newest.get("minutes", 0.0) * 60 if self.points else None
        speeds = [speed for _, speed in series(self.points, "train", "tokens_per_second")]
        # The median, because single points can be slow on a busy machine.
        self.tokens_per_second = statistics.median(speeds[-20:]) if speeds else None
        scores = series(self.points, "validation", "bleu")
        if not scores and self.best and self.best.record and "bleu" in self.best.record.metrics:
            scores = [(self.best.record.step, self.best.record.metrics["bleu"])]
        # The first of equal ones.
        best = max(scores, key=lambda point: point[1], default=None)
        self.best_bleu_step = best[0] if best else None
        self.best_bleu = best[1] if best else None
        files = [file for file in (run.metrics_file, run.config_file, run.checkpoints_dir) if file.exists()]
        age = now - max((file.stat().st_mtime for file in files), default=math.nan)
        self.age_seconds = round(max(0.0, age)) if files else None
        self.num_bytes = num_bytes(run.path)

    def read(self, file: Path, reader: Callable[[], T]) -> T | None:
        """What ``reader`` reads from the file; if it cannot, None, and the problem is added to the others."""
        try:
            return reader()
        except FileNotFoundError:
            self.problems.append(f"{file.name} is missing")
        except OSError as error:
            self.problems.append(f"{file.name} cannot be read: {error.strerror}")
        except ValidationError as error:
            self.problems.append(f"{file.name} is not what training wrote: {first_complaint(error)}")
        except ConfigError as error:
            self.problems.append(str(error).split("\n", 1)[0])
        except DamagedError as error:
            self.problems.append(f"{file.name}: {error}")
        return None

    @property
    def imported_from(self) -> str:
        """Where the weights are from, if they were not trained by mt."""
        return self.latest.record.imported_from if self.latest and self.latest.record else ""

    def _pointed_at(self) -> tuple[SavedCheckpoint | None, SavedCheckpoint | None]:
        """The latest checkpoint and the best one, if there are any."""
        store = CheckpointDirectory(self.run.checkpoints_dir)
        for pointer in (LATEST, BEST):
            if store.pointer(pointer) is None and os.path.lexists(store.directory / pointer):
                self.problems.append(f"checkpoints/{pointer} does not name a checkpoint")
        # A process that was killed between writing the first checkpoint and the pointer has left no pointer.
        latest = store.pointer(LATEST) or next(reversed(store.names()), None)
        if latest is None:
            return None, None
        best = store.pointer(BEST) or latest
        saved = {name: inspect_checkpoint(store.directory / name) for name in (best, latest)}
        self.problems += [f"checkpoints/{name}: {one.problem}" for name, one in saved.items() if one.problem]
        return saved[latest], saved[best]

    def _counters(self) -> Counters | None:
        """Where training was when the latest checkpoint was saved."""
        if self.latest is None:
            return None
        record = self.latest.record
        is_trained = record and not self.imported_from
        counters = self.read(record.folder, lambda: read_counters(record)) if record and is_trained else None
        tokenizers = self.run.src_tokenizer_file, self.run.tgt_tokenizer_file
        self.problems += [f"{file.name} is missing" for file in tokenizers if not file.is_file()]
        return counters

    def _state(self, counters: Counters | None, holder: str | None) -> tuple[State, str | None]:
        """The state; and which process is training, why the run is finished, or what is damaged."""
        if holder:
            # Its files may be in the middle of a change.
            return "running", holder
        if self.problems or self.config is None:
            return "damaged", "; ".join(self.problems)
        if self.imported_from:
            return "imported", f"from {self.imported_from}"
        if counters is None or counters.owes_validation:
            return "stopped", None
        limit = counters.reached_limit(self.config.training, self.config.validation)
        return ("finished" if limit else "stopped"), limit


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
    values = {p.step: p.figures[name] for p in points if p.kind == kind and name in p.figures}
    return sorted((step, value) for step, value in values.items() if math.isfinite(value))
