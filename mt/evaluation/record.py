"""The evaluations of a run, stored in its ``evaluations.jsonl``, one per line, and compared with others.

The best of several noisy validations is partly the luckiest. If another checkpoint, or an average, was
evaluated on the same sentences with the same search, the paired bootstrap says whether the difference is more
than chance.
"""

import contextlib
import hashlib
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter, ValidationError

from mt.checkpoint.record import Checkpoint, read_record
from mt.display import in_precision
from mt.errors import CheckpointError, DataError
from mt.evaluation.scores import MAX_RESAMPLED_LINES, Difference, Score, differences, metrics_of_evaluation
from mt.evaluation.test_set import EvaluationSet, read_lines
from mt.files import append_line
from mt.run_directory import RunDirectory

# How many of the newest evaluations by other checkpoints an evaluation is compared with.
MOST_COMPARED = 5


@dataclass(frozen=True)
class RecordedEvaluation:
    """The scores of one evaluation, and what was evaluated."""

    time: datetime
    mt_version: str
    setting: str
    """The test set, the checkpoint and the decoding strategy, as in the name of the translations' file."""
    data: str
    """The corpus and split of the sentences."""
    checkpoint: str
    step: int
    """The optimizer step of the checkpoint."""
    search: str
    """The decoding strategy in words."""
    num_sentences: int
    exact: float
    """Percentage of translations that equal their reference."""
    scores: dict[str, Score]
    engine: str | None = None
    """What searched; None in a line written before there was a choice, when it was torch."""
    precision: str | None = None
    """The precision of matrix products; None in a line written by a version that did not record it."""

    @property
    def how(self) -> str:
        """The decoding strategy, and the engine and the precision where they are not torch and float32."""
        engine = "" if self.engine in (None, "torch") else f", by {self.engine}"
        return self.search + engine + in_precision(self.precision or "float32")


_ADAPTER = TypeAdapter(RecordedEvaluation)


def name_in_setting(saved: Checkpoint) -> str:
    """The name of a checkpoint in a setting.

    That of an average has a checksum of its checkpoints, because another average with the same name may
    replace it.
    """
    if not saved.average_of:
        return saved.name
    checksum = hashlib.blake2b(" ".join(saved.average_of).encode(), digest_size=2).hexdigest()
    return f"{saved.name}-of{len(saved.average_of)}-{checksum}"


def record_evaluation(run: RunDirectory, evaluation: RecordedEvaluation) -> None:
    """Append an evaluation to the run's file."""
    append_line(run.evaluations_file, _ADAPTER.dump_json(evaluation).decode())


def read_evaluations(run: RunDirectory) -> list[RecordedEvaluation]:
    """The evaluations of a run, from the oldest to the newest, and only the newest of each setting.

    Those of an average that another of its name has replaced are left out, because they would seem to be of
    that one. Lines that are not evaluations are skipped.
    """
    newest: dict[str, RecordedEvaluation] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in run.evaluations_file.read_bytes().split(b"\n"):
            with contextlib.suppress(ValidationError):
                evaluation = _ADAPTER.validate_json(line)
                newest.pop(evaluation.setting, None)
                newest[evaluation.setting] = evaluation
    return [evaluation for evaluation in newest.values() if not _is_replaced(run, evaluation)]


def _is_replaced(run: RunDirectory, evaluation: RecordedEvaluation) -> bool:
    """Whether another checkpoint now has the name of the one that was evaluated."""
    try:
        saved = read_record(run.checkpoints_dir / evaluation.checkpoint)
    except CheckpointError:
        return False
    return f".{name_in_setting(saved)}." not in evaluation.setting


@dataclass(frozen=True)
class OtherCheckpoint:
    """An earlier evaluation of the same sentences with the same search, by another checkpoint."""

    checkpoint: str
    bleu: Difference
    """The difference in BLEU; the other checkpoint is the first system."""


def compare_with_other_checkpoints(
    run: RunDirectory, test_set: EvaluationSet, checkpoint: str, search: str, lines: list[str]
) -> list[OtherCheckpoint]:
    """Compare translations with those that other checkpoints left in the run, the newest evaluations first.

    ``search`` is the decoding strategy and precision, as in the names of files.
    """
    if len(lines) > MAX_RESAMPLED_LINES:
        return []
    others: dict[str, list[str]] = {}
    for evaluation in reversed(read_evaluations(run)):
        setting = evaluation.setting
        is_alike = setting.startswith(f"{test_set.name}.") and setting.endswith(f".{search}")
        if is_alike and evaluation.checkpoint != checkpoint and len(others) < MOST_COMPARED:
            with contextlib.suppress(DataError):
                translations = read_lines(run.hypotheses_file(setting))
                if len(translations) == len(lines):
                    others.setdefault(evaluation.checkpoint, translations)
    if not others:
        return []
    metric = metrics_of_evaluation(test_set.references)["bleu"]
    bleu = differences(metric, lines, list(others.values()), test_set.references)
    return [OtherCheckpoint(*pair) for pair in zip(others, bleu, strict=True)]
