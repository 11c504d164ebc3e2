import json
import os
from pathlib import Path

import pytest
import sacrebleu

from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.run_directory import RunDirectory
from tests.fixture_types import Call


def test_scores_go_to_stdout_each_with_its_signature(
    call: Call, trained: RunDirectory, tiny_corpus: Path
) -> None:
    code, out, err = call("evaluate", "--split", "validation", "--checkpoint", "step_0000100")
    (file,) = trained.path.glob("hypotheses.validation-*.step_0000100.greedy.txt")
    hypotheses = file.read_text(encoding="utf-8").splitlines()
    references = (tiny_corpus / "validation.de").read_text(encoding="utf-8").splitlines()
    assert code == 0
    lines = out.splitlines()
    for line, metric in zip(
        lines, (sacrebleu.BLEU(), sacrebleu.CHRF(word_order=2), sacrebleu.TER()), strict=False
    ):
        score = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        assert line.startswith(f"{score.name} {score.score:.2f}  [")
        assert line.endswith(f"]  ({metric.get_signature()})")
    exact = sum(map(str.__eq__, hypotheses, references)) / len(references)
    assert lines[3] == f"exact sentences {100 * exact:.2f} %"
    assert "\n0-9                  12  " in out
    assert f"12 translations: runs/tiny/{file.name}" in err


def test_the_scores_of_an_ensemble_name_its_models_and_are_not_the_runs(
    call: Call, trained: RunDirectory
) -> None:
    code, out, err = call("evaluate", "--scores-only", "--ensemble", trained.path)
    assert (code, out.splitlines()[0][:4]) == (0, "BLEU")
    best = CheckpointStore(trained.checkpoints_dir).require("best").folder
    assert f"runs/tiny, {best.name} + {best}, " in err
    assert not trained.evaluations_file.exists()


def test_the_worst_sentences(call: Call, trained: RunDirectory) -> None:
    out = call("evaluate", "--worst", "2")[1]
    worst = out.split("\nsentence ")[1:]
    assert len(worst) == 2
    # The last of the test split has a word that training never saw.
    assert "source       the zebra sees milk." in worst[0]
    assert "reference    das Zebra sieht Milch." in worst[0]
    # More than are kept without being asked for.
    assert call("evaluate", "--worst", "11")[1].count("\nsentence ") == 11


def test_figures_as_json(call: Call, trained: RunDirectory, tmp_path: Path) -> None:
    file = tmp_path / "scores.json"
    out = call("evaluate", "--json", file, "--literature", "--beam", "2")[1]
    facts = json.loads(file.read_text(encoding="utf-8"))
    assert list(facts["scores"]) == ["bleu", "chrfpp", "ter", "literature_bleu"]
    for score in facts["scores"].values():
        assert f"{score['name']} {score['value']:.2f}  [" in out
        assert score["signature"] in out
    assert facts["hypotheses_file"].endswith(".beam2-lp1.txt")
    assert facts["num_sentences"] == len(Path(facts["hypotheses_file"]).read_text().splitlines())


def test_outputs_for_other_tools_are_line_by_line(call: Call, trained: RunDirectory, tmp_path: Path) -> None:
    outputs = tmp_path / "a" / "b"
    code, _, err = call("evaluate", "--scores-only", "--outputs", outputs)
    assert code == 0
    assert str(outputs / "sources.txt") in err
    files = [
        (outputs / f"{name}.txt").read_text().splitlines() for name in ("sources", "hypotheses", "references")
    ]
    config = load_config(trained.config_file)
    rows = load_split(config.data, "test", config.cleaning)
    assert files[0] == list(rows["src"])
    assert files[2] == list(rows["tgt"])
    assert len(files[1]) == len(rows)


def test_a_json_file_in_a_missing_folder_is_refused_before_translating(
    call: Call, trained: RunDirectory, tmp_path: Path
) -> None:
    code, _, err = call("evaluate", "--json", tmp_path / "no" / "scores.json")
    assert code == 2
    assert "its folder must exist" in err
    assert call("evaluate", "--json", tmp_path)[0] == 2
    assert not list(trained.path.glob("hypotheses.*"))


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
    assert call("compare", trained.path, second, "--beam", "2", "--show", "0")[0] == 0
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
def test_a_run_that_cannot_be_written_is_named_before_it_translates(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    monkeypatch.delattr("mt.inference.translator.Translator.translate")
    code, _, err = call("evaluate", "--run", "runs/tiny")
    assert (code, "runs/tiny is read-only, but the translations are saved there" in err) == (2, True)


@pytest.mark.usefixtures("trained")
def test_a_system_that_is_not_there_is_named(call: Call) -> None:
    code, out, err = call("compare", "runs/tiny", "nowhere")
    assert (code, out) == (2, "")
    assert "no run in nowhere" in err
