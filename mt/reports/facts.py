"""The facts about a run for all its views; what cannot be read is None or empty, and one of its problems."""

import math
import os
import statistics
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from mt.checkpoint.directory import BEST, LATEST, CheckpointDirectory
from mt.checkpoint.record import (
    MODEL,
    VALUES,
    Checkpoint,
    DamagedError,
    explain_unreadable,
    read_part,
    read_record,
)
from mt.config.explain import first_complaint
from mt.config.load import load_config
from mt.data.corpus_report import CorpusReport
from mt.display import counted
from mt.errors import CheckpointError, ConfigError
from mt.evaluation.record import (
    RecordedEvaluation,
    Score,
    mean_scores,
    read_behaviours,
    read_evaluations,
)
from mt.files import read_json_lines
from mt.run_directory import RunDirectory
from mt.sides import Sides
from mt.training.counters import Counters, SavedValues
from mt.training.metrics_file import read_points

T = TypeVar("T")

_STILL_RUNNING = "still running"
_PROGRESS = ("state", "detail", "step", "epochs", "num_target_tokens", "seconds", "tokens_per_second")
_COUNTS = ("step", "epoch", "num_target_tokens")


class CorpusFacts(CorpusReport):
    """The contents of ``corpus.json``."""

    dropped_in_training: dict[str, int]
    """Pairs dropped when they were encoded, by reason."""
    vocabulary_sizes: dict[str, int]

    @property
    def dropped(self) -> dict[str, int]:
        """All training pairs dropped, by reason, the most frequent first."""
        counts = Counter(self.splits["train"].dropped | self.dropped_in_training)
        return dict((+counts).most_common())


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint, sound or not."""

    name: str
    record: Checkpoint | None
    """None if it cannot be read."""
    num_parameters: int | None
    """Weights of the model; tied ones count once."""
    problem: str | None


def inspect_checkpoint(folder: Path) -> SavedCheckpoint:
    """Read the record of a checkpoint and the headers of its tensors, by which their length is checked."""
    record, num_parameters, problem = None, None, None
    try:
        record = read_record(folder)
        for part in [part for part in record.parts if part != VALUES]:
            with explain_unreadable(part), safe_open(folder / part, framework="numpy") as tensors:
                shapes = [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118
            if part == MODEL:
                num_parameters = sum(map(math.prod, shapes))
    except CheckpointError as error:
        problem = str(error)
    except SafetensorError:
        problem = f"{part} is not what was saved (wrong header or length)"
    return SavedCheckpoint(folder.name, record, num_parameters, problem)


@dataclass
class TrainingSession:
    """What one process that trained did."""

    started: datetime
    first_step: int | None = None
    """The step that it continued from, 0 for a new run; None if it did not get as far as training."""
    outcome: str = ""
    """How it ended; empty if nothing says so, because it was killed or still runs."""
    warnings: list[str] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    """How its validation computed the scores, by their names."""

    def __str__(self) -> str:
        outcome = self.outcome or "nothing says how it ended, as after a kill"
        begun = f"resumed from step {self.first_step:,}" if self.first_step else "started"
        if self.first_step is None and self.outcome not in ("", _STILL_RUNNING):
            begun = "did not begin"
        return f"{begun}; {outcome[0].lower()}{outcome[1:]}"


def read_sessions(run: RunDirectory) -> list[TrainingSession]:
    """The sessions in ``sessions.jsonl``; lines that are no events are skipped."""
    sessions: list[TrainingSession] = []
    for event in read_json_lines(run.sessions_file):
        match event:
            case {"event": "start", "time": str(time)}:
                with suppress(ValueError):
                    sessions.append(TrainingSession(datetime.fromisoformat(time)))
            case _ if not sessions:
                pass
            case {"event": "training", "step": int(step)}:
                sessions[-1].first_step = step
            case {"event": "validation", "signatures": dict(signatures)}:
                sessions[-1].signatures = signatures
            case {"event": "warning", "text": str(text)}:
                sessions[-1].warnings.append(text)
            case {"event": "end", "reason": str(reason)}:
                sessions[-1].outcome = reason
    return sessions


class RunFacts:
    """Everything that a run has recorded about itself, read when this is created."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self.problems: list[str] = []
        # What training needs, which tells the state of the run.
        self.config = self._read(run.config_file, load_config)
        self.points = self._read(run.metrics_file, read_points) or []
        # What to resume from, and what to translate with: until a validation has marked one, the latest.
        self.latest, self.best = self._pointed_at()
        record = self.latest.record if self.latest else None
        self.environment = record.environment if record else {}
        self.imported_from = record.imported_from if record else ""
        counters, holder = self._counters(), run.lock_owner()
        self.state, self.detail = self._state(counters, holder)
        # The newest finite value of each metric, and the newest step.
        newest: dict[str, float] = {}
        for point in self.points:
            finite = {name: value for name, value in point.figures.items() if math.isfinite(value)}
            newest |= finite | {"step": max(point.step, newest.get("step", 0))}
        # Where it would resume; for a run in training, the newest known step.
        figures = vars(counters) if counters and not holder else newest
        counts = {name: int(number) for name, number in figures.items() if name in _COUNTS}
        self.step, self.epochs, self.num_target_tokens = map(counts.get, _COUNTS)
        # Of training and validation, up to the newest point.
        self.seconds = newest.get("minutes", 0.0) * 60 if newest else None
        # What is read from here on is for reports: problems with it do not make the run a damaged one.
        self.corpus: CorpusFacts | None = None
        if not self.imported_from or run.corpus_file.exists():
            parse = CorpusFacts.model_validate_json
            self.corpus = self._read(run.corpus_file, lambda _: parse(run.read_corpus_report()))
        self.sessions = self._read(run.sessions_file, lambda _: read_sessions(run)) or []
        if self.sessions and self.state == "running":
            self.sessions[-1].outcome = _STILL_RUNNING
        self.evaluations = self._read(run.evaluations_file, lambda _: read_evaluations(run)) or []
        self.behaviours = read_behaviours(run)
        store = CheckpointDirectory(run.checkpoints_dir)
        self.checkpoints = []
        for name in (*store.names(), *store.averages()):
            folder = store.directory / name
            # Training removes old ones.
            if folder.is_dir():
                self.checkpoints.append(inspect_checkpoint(folder))

    @property
    def tokens_per_second(self) -> float | None:
        """The speed of training, the median of the newest points: single ones are slow on a busy machine."""
        speeds = [speed for _, speed in self.curve("train", "tokens_per_second")]
        return statistics.median(speeds[-20:]) if speeds else None

    @property
    def directions(self) -> list[Sides[str]]:
        """The directions of a run of several; empty for a run of one."""
        directions = self.config.data.directions if self.config else []
        return directions if len(directions) > 1 else []

    @property
    def tests(self) -> list[list[RecordedEvaluation]]:
        """For each checkpoint and search, the newest test in each direction; the newest of all is last."""
        alike: dict[tuple[str, ...], dict[str, RecordedEvaluation]] = {}
        for test in self.evaluations:
            if test.setting.startswith("test-"):
                key = test.checkpoint, test.search, test.engine, test.precision
                direction = test.direction if self.directions else ""
                alike[key] = alike.pop(key, {}) | {direction: test}
        return [list(by_direction.values()) for by_direction in alike.values()]

    @property
    def best_bleu(self) -> float | None:
        """The highest BLEU of validation; of several directions, the mean."""
        points = self.curve("validation", "mean_bleu" if self.directions else "bleu")
        return max((bleu for _, bleu in points), default=None)

    @property
    def test_scores(self) -> dict[str, Score]:
        """The scores of the newest test, whatever its search; of several directions, the means."""
        return mean_scores(self.tests[-1]) if self.tests else {}

    @cached_property
    def summary(self) -> dict[str, Any]:
        """How far the run has got, and its scores."""
        values: dict[str, Any] = {"best_bleu": self.best_bleu}
        for name in _PROGRESS:
            values[name] = getattr(self, name)
        for key, score in self.test_scores.items():
            values[f"test_{key}"] = score.value
        return values

    def curve(self, kind: str, name: str) -> list[tuple[int, float]]:
        """Steps and finite values of a metric of training (``train``) or ``validation``, by step."""
        values = {}
        for point in self.points:
            if point.kind == kind and math.isfinite(point.figures.get(name, math.nan)):
                values[point.step] = point.figures[name]
        return sorted(values.items())

    @property
    def model(self) -> dict[str, str]:
        """The shape of the model, in words; empty if the config cannot be read."""
        if self.config is None:
            return {}
        model = self.config.model
        kind = self.config.tokenizer.kind
        sizes = self.corpus.vocabulary_sizes if self.corpus else {}
        entries = " and ".join(f"{count:,} ({side})" for side, count in sizes.items())
        num_parameters = self.best.num_parameters if self.best else None
        origin = self.config.init_from
        frozen = self.config.training.freeze
        described = {
            "architecture": "Transformer, encoder and decoder (Vaswani et al. 2017)",
            "layers": f"{model.num_encoder_layers} encoder, {model.num_decoder_layers} decoder",
            "width": f"{model.d_model}, feed-forward {model.d_ff}, {counted(model.num_heads, 'head')}",
            "parameters": written(num_parameters, "{:,}"),
            "tokenizer": f"{kind}, {entries} entries" if entries else kind,
        }
        if origin.run:
            described["begun from"] = f"{origin.run}@{origin.checkpoint}"
        if frozen:
            described["frozen"] = frozen
        return described

    @property
    def progress(self) -> dict[str, str]:
        """How long it was trained, and why it ended."""
        stages = self.config.training.stages if self.config else {}
        named = [f"{name}, {stage.steps:,}" for name, stage in stages.items()]
        return {
            "state": f"{self.state}: {self.detail}" if self.detail else self.state,
            "steps": written(self.step, "{:,}"),
            **({"stages": "; ".join(named)} if named else {}),
            "epochs completed": written(self.epochs, "{:,}"),
            "target tokens": written(self.num_target_tokens, "{:,}"),
            "time": short_duration(self.seconds) if self.seconds else "unknown",
            "speed": written(self.tokens_per_second, "{:,.0f} target tokens per second"),
        }

    def _read(self, file: Path, reader: Callable[[Path], T]) -> T | None:
        """What ``reader`` reads from the file; if it cannot, None, and the problem is added to the others."""
        try:
            return reader(file)
        except (OSError, ConfigError, DamagedError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        except ValidationError as error:
            reason = f"not what training wrote: {first_complaint(error)}"
        self.problems.append(f"{file.name}: {reason.splitlines()[0]}")
        return None

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
        tokenizers = self.run.src_tokenizer_file, self.run.tgt_tokenizer_file
        self.problems += [f"{file.name} is missing" for file in tokenizers if not file.is_file()]
        record = self.latest.record
        if record is None or self.imported_from:
            return None
        saved = SavedValues.model_validate_json
        return self._read(record.folder / VALUES, lambda _: saved(read_part(record, VALUES)).counters)

    def _state(self, counters: Counters | None, holder: str | None) -> tuple[str, str | None]:
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
