from collections.abc import Callable
from pathlib import Path

import pytest
import sacrebleu

from mt.data.sources import builtin
from mt.run_directory import RunDirectory

Call = Callable[..., tuple[int, str, str]]


def test_scores_go_to_stdout_each_with_its_signature(
    call: Call, trained: RunDirectory, tiny_corpus: Path
) -> None:
    code, out, err = call("evaluate", "--split", "validation")
    hypotheses = trained.hypotheses_file("validation").read_text(encoding="utf-8").splitlines()
    references = (tiny_corpus / "validation.de").read_text(encoding="utf-8").splitlines()
    assert code == 0
    lines = out.splitlines()
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    for line, metric in zip(lines, (bleu, chrf), strict=False):
        score = metric.corpus_score(hypotheses, [references])
        assert line == f"{score.name} {score.score:.2f}  ({metric.get_signature()})"
    exact = sum(map(str.__eq__, hypotheses, references)) / len(references)
    assert lines[2:] == [f"exact sentences {100 * exact:.2f} %"]
    assert "12 translations: runs/tiny/hypotheses.validation.txt" in err


def test_accuracy_by_length_where_words_are_reversed(
    call: Call, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(builtin.NUM_PAIRS, builtin.REVERSE, {"train": 50, "validation": 5, "test": 40})
    sets = ["data.path=builtin:reverse", "data.max_length=32", "training.max_steps=1"]
    assert call("train", "-c", tiny_config_file, *(x for s in sets for x in ("--set", s)))[0] == 0
    _, out, _ = call("evaluate")
    table = out.split("words  sentences  exact\n")[1].splitlines()
    assert sum(int(line.split()[1]) for line in table) == 40


def test_a_split_that_does_not_exist(call: Call) -> None:
    code, _, err = call("evaluate", "--split", "tset")
    assert code == 2
    assert "validation" in err
