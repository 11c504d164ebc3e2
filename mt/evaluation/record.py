"""The evaluations of a run, stored in its ``evaluations.jsonl``, one per line, and compared with others.

The best of several noisy validations is partly the luckiest. If another checkpoint, or an average, was
evaluated on the same sentences with the same search, the paired bootstrap says whether the difference is more
than chance.
"""

import contextlib
import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from mt.checkpoint.record import Checkpoint, VanishedError, read_record_of
from mt.display import in_precision
from mt.errors import CheckpointError, DataError, RunError
from mt.evaluation.scores import MAX_RESAMPLED_LINES, Difference, Score, differences_in_bleu
from mt.evaluation.test_set import EvaluationSet, read_lines
from mt.files import append_line, read_bytes
from mt.run_directory import RunDirectory

_MAX_BYTES = 20_000_000
_MAX_COUNT = 10**18
# How many of the newest evaluations by other checkpoints an evaluation is compared with.
MOST_COMPARED = 5
# An average in a setting, as `name_in_setting` writes it.
_AVERAGE = re.compile(r"\.((average_[0-9]{1,18})-of[0-9]+-[0-9a-f]{4})(?=\.)")

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
    try:
        append_line(run.evaluations_file, _ADAPTER.dump_json(evaluation).decode())
    except OSError as error:
        raise RunError(
            f"Cannot add the scores to {run.evaluations_file}: {error.strerror}. It must be a writable file, "
            "or not exist."
        ) from error


def read_evaluations(run: RunDirectory) -> list[RecordedEvaluation]:
    """The evaluations of a run, from the oldest to the newest.

    Of several with the same test set, name of the checkpoint and search, only the newest is returned. Those
    of an average that another of its name has replaced are left out, because they would seem to be of that
    one. Lines that are not evaluations are skipped.
    """
    try:
        content = read_bytes(run.evaluations_file, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return []
    newest: dict[str, RecordedEvaluation] = {}
    present = functools.cache(lambda name: _present_average(run, name))
    for line in content.split(b"\n"):
        with contextlib.suppress(ValidationError):
            evaluation = _ADAPTER.validate_json(line)
            average = _AVERAGE.search(evaluation.setting)
            if average and present(average[2]) not in (average[1], None):
                continue
            key = _AVERAGE.sub(r".\2", evaluation.setting)
            newest.pop(key, None)
            newest[key] = evaluation
    return list(newest.values())


def _present_average(run: RunDirectory, name: str) -> str | None:
    """The average that now has this name, as in a setting; None if there is none that can be read."""
    try:
        return name_in_setting(read_record_of(run.checkpoints_dir / name))
    except (CheckpointError, VanishedError):
        return None


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

    Args:
        run: The run.
        test_set: The test set that was translated.
        checkpoint: The checkpoint that translated it.
        search: The decoding strategy and precision, as in the names of files.
        lines: The translations.
    """
    if len(lines) > MAX_RESAMPLED_LINES:
        return []
    found = dict(_earlier(run, test_set, checkpoint, search))
    names = list(found)[-MOST_COMPARED:][::-1]
    if not names:
        return []
    differences = differences_in_bleu(lines, [found[name] for name in names], test_set.references)
    return [OtherCheckpoint(name, bleu) for name, bleu in zip(names, differences, strict=True)]


def _earlier(
    run: RunDirectory, test_set: EvaluationSet, checkpoint: str, search: str
) -> Iterator[tuple[str, list[str]]]:
    """Other checkpoints, from the oldest evaluation to the newest, with their translations."""
    evaluations: list[RecordedEvaluation] = []
    with contextlib.suppress(OSError):
        evaluations = read_evaluations(run)
    for each in evaluations:
        is_alike = each.setting.startswith(f"{test_set.name}.") and each.setting.endswith(f".{search}")
        # A setting with a slash is in another folder.
        if not is_alike or each.checkpoint == checkpoint or "/" in each.setting:
            continue
        average = _AVERAGE.search(each.setting)
        if average and _present_average(run, average[2]) != average[1]:
            continue
        with contextlib.suppress(DataError):
            lines = read_lines(run.hypotheses_file(each.setting))
            if len(lines) == len(test_set.references):
                yield each.checkpoint, lines
