"""Whether the checkpoints of a run differ: an evaluation beside earlier ones of the same sentences.

The best of several noisy validations is partly the luckiest. Where another checkpoint, or an average, was
evaluated on the same sentences with the same search, the paired bootstrap says whether the difference is more
than chance.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from mt.errors import DataError
from mt.evaluation.record import RecordedEvaluation, read_evaluations
from mt.evaluation.scores import MAX_RESAMPLED_LINES, Difference, differences_in_bleu
from mt.evaluation.test_set import EvaluationSet, read_lines
from mt.run_directory import RunDirectory

MOST_COMPARED = 5


@dataclass(frozen=True)
class OtherCheckpoint:
    """An earlier evaluation of the same sentences with the same search, by another checkpoint."""

    checkpoint: str
    bleu: Difference
    """Of which the other checkpoint is the first system."""


def compare_with_other_checkpoints(
    run: RunDirectory, test_set: EvaluationSet, checkpoint: str, search: str, lines: list[str]
) -> list[OtherCheckpoint]:
    """Compare translations with those that other checkpoints left in the run, the newest evaluations first.

    Args:
        run: The run.
        test_set: What was translated.
        checkpoint: By which checkpoint.
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
        # An average may have replaced another of the same name. A setting with a slash is not of this folder.
        if not is_alike or each.checkpoint == checkpoint or "/" in each.setting:
            continue
        with contextlib.suppress(DataError):
            lines = read_lines(run.hypotheses_file(each.setting))
            if len(lines) == len(test_set.references):
                yield each.checkpoint, lines
