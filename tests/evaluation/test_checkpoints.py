"""Evaluating says whether the checkpoints of a run differ, as sacreBLEU's paired test does."""

from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu

from mt.checkpoint.store import CheckpointStore
from mt.evaluation.evaluate import Evaluation, run_evaluation
from mt.evaluation.record import read_evaluations
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam

Evaluate = Callable[..., Evaluation]


@pytest.fixture
def evaluate(trained: RunDirectory) -> Evaluate:
    """`run_evaluation` of the trained run."""

    def run(checkpoint: str, **options: object) -> Evaluation:
        return run_evaluation(trained, checkpoint=checkpoint, device="cpu", analyse=False, **options)  # type: ignore[arg-type]

    return run


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split("\n")[:-1]


def test_a_second_checkpoint_is_compared_with_the_first_as_by_sacrebleu(
    evaluate: Evaluate, table_of_command_line: Callable[..., list[list[str]]]
) -> None:
    first = evaluate("step_0000100")
    assert first.other_checkpoints == []
    worse = first.hypotheses_file.read_text(encoding="utf-8").replace("sieht", "findet")
    first.hypotheses_file.write_text(worse, encoding="utf-8")
    second = evaluate("step_0000200")
    (other,) = second.other_checkpoints
    assert other.checkpoint == "step_0000100"
    expected = sacrebleu.corpus_bleu(worse.split("\n")[:-1], [lines(first.references_file)])
    assert other.bleu.first.value == expected.score
    assert other.bleu.second.value == second.scores["bleu"].value
    assert other.bleu.gain != 0
    files = (second.hypotheses_file, first.hypotheses_file, second.references_file)
    _, compared = table_of_command_line(*map(lines, files), "-m", "bleu", "--paired-bs")
    assert f"(p = {other.bleu.p_value:.4f})" in " ".join(compared)


def test_only_the_same_sentences_and_search_are_compared(evaluate: Evaluate) -> None:
    evaluate("step_0000100")
    assert evaluate("step_0000200", split="validation").other_checkpoints == []
    assert evaluate("step_0000200", beam=Beam(2, 1.0)).other_checkpoints == []
    assert evaluate("step_0000100").other_checkpoints == []


def test_of_averages_with_one_name_only_the_present_one_is_compared(
    evaluate: Evaluate, trained: RunDirectory
) -> None:
    store = CheckpointStore(trained.checkpoints_dir)
    steps = [store.require(name) for name in ("step_0000100", "step_0000150", "step_0000200")]
    old = store.save_average(steps[1:])
    evaluate(old.name)
    assert [each.checkpoint for each in evaluate("step_0000100").other_checkpoints] == [old.name]
    new = store.save_average(steps)
    assert new.name == old.name
    # Its translations are those of an average that is gone.
    assert [each.checkpoint for each in evaluate("step_0000150").other_checkpoints] == ["step_0000100"]
    assert [each.checkpoint for each in evaluate("step_0000100").other_checkpoints] == ["step_0000150"]
    evaluate(new.name)
    # It is the newest evaluation now, not where the old one was.
    found = evaluate("step_0000200").other_checkpoints
    assert [each.checkpoint for each in found] == [new.name, "step_0000100", "step_0000150"]
    shown = [each.checkpoint for each in read_evaluations(trained)]
    assert shown == ["step_0000150", "step_0000100", new.name, "step_0000200"]


def test_lost_or_shorter_translations_are_passed_over(evaluate: Evaluate) -> None:
    evaluate("step_0000100").hypotheses_file.unlink()
    evaluate("step_0000150").hypotheses_file.write_text("short\n", encoding="utf-8")
    assert evaluate("step_0000200").other_checkpoints == []
