"""An evaluation for other programs: a JSON file, and TensorBoard beside the run's curves."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from mt.atomic_files import write_output
from mt.display import markdown_text
from mt.errors import RunError
from mt.pipeline.evaluate import Evaluation
from mt.run_directory import RunDirectory


def write_json(evaluation: Evaluation, file: Path) -> None:
    """Write all that was found, each score with its signature, in place of what ``file`` held."""
    facts = asdict(evaluation) | {
        "hypotheses_file": str(evaluation.hypotheses_file),
        "references_file": str(evaluation.references_file),
    }
    write_output(file, json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def show_in_tensorboard(evaluation: Evaluation, run: RunDirectory) -> None:
    """Draw the scores at the checkpoint's step, and the worst sentences as a table.

    TensorBoard takes the folder for a run of its own, so that nothing that training does to its curves when
    it is resumed touches these, nor these the curves; the same setting again replaces its figures.

    Raises:
        RunError: If a link leads out of the run directory.
    """
    folder = run.evaluation_dir(evaluation.setting)
    if folder.resolve() != run.path.resolve() / folder.relative_to(run.path):
        raise RunError(f"{folder} leads through a link out of the run directory: remove the link.")
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()
    step = evaluation.step
    with SummaryWriter(str(folder)) as writer:
        for key, score in evaluation.scores.items():
            writer.add_scalar(f"evaluation/{key}", score.value, step)
        if evaluation.literature is not None:
            writer.add_scalar("evaluation/literature_bleu", evaluation.literature.value, step)
        writer.add_scalar("evaluation/exact", evaluation.exact, step)
        if evaluation.analysis is not None:
            writer.add_scalar("evaluation/length_ratio", evaluation.analysis.length_ratio, step)
        writer.add_text("evaluation/scores", _scores_table(evaluation), step)
        writer.add_text("evaluation/worst", _worst_table(evaluation), step)


def _scores_table(evaluation: Evaluation) -> str:
    scores = [*evaluation.scores.values(), *([evaluation.literature] if evaluation.literature else [])]
    rows = [
        (
            score.name,
            f"{score.value:.2f}",
            "{:.2f} to {:.2f}".format(*score.interval) if score.interval else "",
            markdown_text(score.signature),
        )
        for score in scores
    ]
    return _markdown(("score", "value", "95 % interval", "signature"), rows)


def _worst_table(evaluation: Evaluation) -> str:
    rows = [
        (
            str(each.number),
            f"{each.chrfpp:.1f}",
            *map(markdown_text, (each.source, each.translation, each.reference)),
        )
        for each in evaluation.worst
    ]
    return _markdown(("sentence", "chrF2++", "source", "translation", "reference"), rows)


def _markdown(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
