"""The evaluations of a run, kept in its ``evaluations.jsonl``: one line of JSON for each."""

import contextlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from mt.atomic_files import append_line
from mt.display import in_precision
from mt.errors import RunError
from mt.evaluation.scores import Score
from mt.regular_files import read_bytes
from mt.run_directory import RunDirectory

_MAX_BYTES = 20_000_000
_MAX_COUNT = 10**18

Count = Annotated[int, Field(ge=0, lt=_MAX_COUNT)]


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
    step: Count
    """The optimizer step of the checkpoint."""
    search: str
    """The decoding strategy in words."""
    num_sentences: Count
    exact: float
    """Percentage of translations that equal their reference."""
    scores: dict[str, Score]
    precision: str | None = None
    """The precision of matrix products; None in a line of a version that did not record it."""

    @property
    def how(self) -> str:
        """The decoding strategy, and the precision where it is known not to be float32."""
        return self.search + in_precision(self.precision or "float32")


_ADAPTER = TypeAdapter(RecordedEvaluation)


def record_evaluation(run: RunDirectory, evaluation: RecordedEvaluation) -> None:
    """Append an evaluation to the run's file.

    Raises:
        RunError: If the file cannot be written, or is a link.
    """
    try:
        append_line(run.evaluations_file, _ADAPTER.dump_json(evaluation).decode())
    except OSError as error:
        raise RunError(
            f"Cannot add the scores to {run.evaluations_file}: {error.strerror}. It must be a file that can "
            "be written, or not be there."
        ) from error


def read_evaluations(run: RunDirectory) -> list[RecordedEvaluation]:
    """The evaluations of a run, from the oldest to the newest; of several of one setting the newest alone.

    Lines that are not evaluations are skipped.

    Raises:
        OSError: If the file is there and cannot be read.
    """
    try:
        content = read_bytes(run.evaluations_file, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return []
    newest: dict[str, RecordedEvaluation] = {}
    for line in content.split(b"\n"):
        with contextlib.suppress(ValidationError):
            evaluation = _ADAPTER.validate_json(line)
            newest.pop(evaluation.setting, None)
            newest[evaluation.setting] = evaluation
    return list(newest.values())
