import json
from pathlib import Path

import pytest
import sacrebleu

from mt.run_directory import RunDirectory
from tests.fixture_types import Call


def test_scores_side_by_side_and_the_sentences_that_differ_most(
    call: Call, trained: RunDirectory, tiny_corpus: Path, tmp_path: Path
) -> None:
    assert call("evaluate", "--checkpoint", "step_0000100", "--scores-only")[0] == 0
    (first,) = trained.path.glob("hypotheses.test-*.step_0000100.greedy.txt")
    second = tmp_path / "mine.txt"
    references = (tiny_corpus / "test.de").read_text(encoding="utf-8").splitlines()
    second.write_text("".join(f"{line}\n" for line in ["nichts", *references[1:]]), encoding="utf-8")
    refused = call("compare", first, second, "--beam", "5")
    assert (refused[0], "--beam needs a run" in refused[2]) == (2, True)
    code, out, _ = call("compare", first, second, "--show", "1", "--json", tmp_path / "c.json")
    assert code == 0
    lines = out.splitlines()
    assert lines[:2] == [f"A  {first}", f"B  {second}"]
    assert lines[2] == f"22 sentences of {tiny_corpus}, test"
    assert lines[4].split()[:3] == ["BLEU", "-", "A"]
    (_, a, *_), (_, b, gain, *_) = (line.split() for line in lines[5:7])
    hypotheses = first.read_text(encoding="utf-8").splitlines()
    assert a == f"{sacrebleu.corpus_bleu(hypotheses, [references]).score:.2f}"
    assert abs(float(gain) - (float(b) - float(a))) < 0.011
    assert out.count("\nsentence ") == 1
    assert "  B          nichts\n" in out
    assert len(json.loads((tmp_path / "c.json").read_text())["sentences"]) == 1


@pytest.mark.usefixtures("trained")
def test_a_system_that_is_not_there_is_named(call: Call) -> None:
    code, out, err = call("compare", "runs/tiny", "nowhere")
    assert (code, out) == (2, "")
    assert "there is no nowhere" in err
