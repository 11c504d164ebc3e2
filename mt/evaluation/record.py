"""What was found about a model, in its run: ``evaluations.jsonl``, one per line, and ``behaviours.json``."""

import contextlib
import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from mt.checkpoint.record import Checkpoint, read_record
from mt.display import counted, in_precision
from mt.errors import CheckpointError
from mt.files import append_line, read_json_lines
from mt.run_directory import RunDirectory

_OF_PARTS = ("names", "numbers", "emoji", "web addresses", "e-mail addresses")
# How much worse than clean text, in BLEU, is poor, and what cures it; below 90 % for shares.
_CURES = {
    "capitals": (4.0, "as_written.upper, such as 0.07"),
    "title case": (4.0, "as_written.title, such as 0.05"),
    "no final punctuation": (1.0, "as_written.no_final_punctuation, such as 0.2"),
    "typing errors": (8.0, "as_written.typos, such as 0.05"),
    "two lines joined": (2.0, "as_written.joined, such as 0.05"),
    "longest tenth": (8.0, "more long pairs, and a larger data.max_length"),
    "one word alone": (10.0, "single words among the training pairs, as from a dictionary"),
    "a negation removed": (10.0, "more training pairs, or a larger model"),
} | dict.fromkeys(_OF_PARTS, (10.0, "training.keep_share, such as 0.1, with training.guided_alignment"))


@dataclass(frozen=True)
class Score:
    """A score in points; higher is better for BLEU and chrF, lower for TER."""

    name: str
    value: float
    signature: str
    interval: tuple[float, float] | None = None
    """The 95 % confidence interval (bootstrap resampling; Koehn 2004)."""

    def __str__(self) -> str:
        interval = "" if self.interval is None else "  [{:.2f}, {:.2f}]".format(*self.interval)
        return f"{self.name} {self.value:.2f}{interval}  ({self.signature})"


@dataclass(frozen=True, kw_only=True)
class RecordedEvaluation:
    """The scores of one evaluation, and what was evaluated."""

    time: datetime
    mt_version: str
    setting: str
    """The test set, the checkpoint and the decoding strategy, as in the name of the translations' file."""
    data: str
    direction: str = ""
    """The languages, such as ``en to de``; empty in records of earlier versions."""
    checkpoint: str
    step: int
    search: str
    """The decoding strategy in words."""
    engine: str = "torch"
    precision: str = "float32"
    """The precision of matrix products."""
    num_sentences: int
    scores: dict[str, Score]
    exact: float
    """Percentage of translations that equal their reference."""
    num_rewritten: int = 0
    """References that were rewritten in the form of the run's training text, as the translations were."""

    @property
    def how(self) -> str:
        """The decoding strategy, the engine and the precision if not torch and float32, and changed texts."""
        engine = "" if self.engine == "torch" else f", by {self.engine}"
        rewritten = f", {counted(self.num_rewritten, 'reference')} rewritten" if self.num_rewritten else ""
        return self.search + engine + in_precision(self.precision) + rewritten


def mean_scores(evaluations: Sequence[RecordedEvaluation]) -> dict[str, Score]:
    """The mean of each score that all have, by its key; its signature says of which directions it is."""
    means = {}
    directions = ", ".join(evaluation.direction for evaluation in evaluations)
    for key, score in evaluations[0].scores.items():
        values = [evaluation.scores[key].value for evaluation in evaluations if key in evaluation.scores]
        if len(values) == len(evaluations):
            means[key] = Score(score.name, statistics.fmean(values), f"mean of {directions}")
    return means


_ADAPTER = TypeAdapter(RecordedEvaluation)


def name_in_setting(saved: Checkpoint) -> str:
    """The name of a checkpoint in a setting; an average's has a checksum, as another may take its name."""
    if not saved.average_of:
        return saved.name
    checksum = hashlib.blake2b(" ".join(saved.average_of).encode(), digest_size=2).hexdigest()
    return f"{saved.name}-of{len(saved.average_of)}-{checksum}"


def record_evaluation(run: RunDirectory, evaluation: RecordedEvaluation) -> None:
    """Append the fields of `RecordedEvaluation` to the run's file."""
    append_line(run.evaluations_file, _ADAPTER.dump_json(evaluation).decode())


def read_evaluations(run: RunDirectory) -> list[RecordedEvaluation]:
    """The evaluations of a run, from the oldest to the newest, and only the newest of each setting.

    Those of an average that another of its name has replaced are left out, because they would seem to be of
    that one. Lines that are not evaluations are skipped.
    """
    newest: dict[str, RecordedEvaluation] = {}
    for line in read_json_lines(run.evaluations_file):
        with contextlib.suppress(ValidationError):
            evaluation = _ADAPTER.validate_python(line)
            newest.pop(evaluation.setting, None)
            newest[evaluation.setting] = evaluation
    current = []
    for evaluation in newest.values():
        with contextlib.suppress(CheckpointError):
            saved = read_record(run.checkpoints_dir / evaluation.checkpoint)
            if f".{name_in_setting(saved)}." not in evaluation.setting:
                continue
        current.append(evaluation)
    return current


@dataclass(frozen=True)
class Example:
    """A line, what became of it, and what was wished for."""

    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class Behaviour:
    """How a model does with one kind of text."""

    name: str
    num_lines: int
    measure: str
    """BLEU, or the percentage of lines that are as wished."""
    value: float
    interval: tuple[float, float]
    """95 %: by bootstrap resampling, or Wilson's of a share."""
    drop: float
    """How many points it is below clean text, or below 100 %."""
    examples: list[Example] = field(default_factory=list)
    """The worst lines, of the worst behaviours."""


@dataclass(frozen=True)
class Behaviours:
    """What `mt evaluate --behaviours` finds, with the signature of BLEU."""

    data: str
    direction: str
    checkpoint: str
    engine: str
    """What searched, in which precision."""
    signature: str
    behaviours: list[Behaviour]
    left_out: dict[str, str]
    """Why some could not be measured, by their names."""

    @property
    def cures(self) -> list[str]:
        """The option that helps, in a sentence for each behaviour that is poor."""
        sentences = []
        for found in self.behaviours:
            most, cure = _CURES.get(found.name, (math.inf, ""))
            # Of a weak model, a few points are most of what it has.
            if cure and found.drop > min(most, (found.value + found.drop) / 4):
                sentences.append(f"{found.name}: {found.drop:.1f} points lower. What helps: {cure}.")
        return sentences


_BEHAVIOURS = TypeAdapter(Behaviours)


def to_json(found: Behaviours) -> str:
    """The content of the run's ``behaviours.json``."""
    return json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n"


def read_behaviours(run: RunDirectory) -> Behaviours | None:
    """What was found last; None if nothing was, or it cannot be read."""
    try:
        return _BEHAVIOURS.validate_json(run.behaviours_file.read_bytes())
    except (OSError, ValidationError):
        return None
