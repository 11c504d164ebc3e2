"""`mt evaluate` and `mt compare` as a shell would call them: what they print, write and refuse."""

import json
import os
import re
from pathlib import Path

import pytest
import sacrebleu

from mt.checkpoint.store import CheckpointStore
from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse

pytestmark = pytest.mark.usefixtures("trained")
RUN = Path("runs/tiny")


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def test_scores_go_to_stdout_each_with_its_signature(succeed: Call, tiny_corpus: Path) -> None:
    _, out, err = succeed("evaluate", "--split", "validation", "--checkpoint", "step_0000150")
    (file,) = RUN.glob("hypotheses.validation-*.step_0000150.greedy.txt")
    hypotheses, references = lines_of(file), lines_of(tiny_corpus / "validation.de")
    lines = out.splitlines()
    values = []
    for line, metric in zip(
        lines, (sacrebleu.BLEU(), sacrebleu.CHRF(word_order=2), sacrebleu.TER()), strict=False
    ):
        score = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        values.append(score.score)
        assert line.startswith(f"{score.name} {score.score:.2f}  [")
        assert line.endswith(f"]  ({metric.get_signature()})")
    exact = sum(map(str.__eq__, hypotheses, references)) / len(references)
    ratio = sacrebleu.corpus_bleu(hypotheses, [references]).ratio
    assert lines[3:] == [
        f"exact sentences {100 * exact:.2f} %",
        f"length ratio {ratio:.3f} (words in the output / words in the references)",
        "",
        "source words  sentences    BLEU  chrF2++  length ratio",
        # All are short.
        f"0-9                  12  {values[0]:6.2f}  {values[1]:7.2f}  {ratio:12.3f}",
    ]
    assert f"runs/tiny, step_0000150, {tiny_corpus}, validation: greedy search, by torch in float32\n" in err
    [references_file] = RUN.glob("references.validation-*.txt")
    assert f"12 translations: {file}\ntheir references: {references_file}\n" in err


def test_the_scores_of_an_ensemble_name_its_models_and_are_not_the_runs(
    succeed: Call, refuse: Refuse, trained: RunDirectory
) -> None:
    # A folder for outputs may be there already.
    _, out, err = succeed("evaluate", "--scores-only", "--ensemble", trained.path, "--outputs", ".")
    assert [line.split()[0] for line in out.splitlines()] == ["BLEU", "chrF2++", "TER", "exact"]
    best = CheckpointStore(trained.checkpoints_dir).require("best").folder
    assert f"runs/tiny, {best.name} + {best}, " in err
    assert not trained.evaluations_file.exists()
    assert "only torch" in refuse("evaluate", "--ensemble", "tiny", "--engine", "ctranslate2")


def test_the_fast_engine_translates_with_the_checkpoint_that_is_named(succeed: Call) -> None:
    pytest.importorskip("ctranslate2")
    evaluate = ("evaluate", "--scores-only", "--checkpoint", "step_0000150")
    succeed(*evaluate)
    err = succeed(*evaluate, "--engine", "ctranslate2", "--precision", "float32").err
    assert ": greedy search, by ctranslate2 in float32\n" in err
    [ours], [theirs] = (RUN.glob(f"hypotheses.*.step_0000150.{how}.txt") for how in ("greedy", "greedy-ct*2"))
    # Only a near-tie may fall the other way.
    assert sum(map(str.__ne__, lines_of(ours), lines_of(theirs))) <= 1
    [record] = RUN.glob("engine/*/float32/mt_export.json")
    assert json.loads(record.read_text())["checkpoint"] == "step_0000150"


def test_the_worst_sentences_and_all_figures_as_json(succeed: Call) -> None:
    evaluate = ("evaluate", "--worst", "2", "--literature", "--beam", "2")
    _, out, err = succeed(*evaluate)
    [facts] = json.loads(succeed(*evaluate, "--json").out)
    assert list(facts["scores"]) == ["bleu", "chrfpp", "ter", "literature_bleu"]
    for score in facts["scores"].values():
        assert f"{score['name']} {score['value']:.2f}  [" in out
        assert score["signature"] in out
    assert "|lang:de|" in facts["scores"]["literature_bleu"]["signature"]
    assert facts["hypotheses_file"].endswith(".beam2-lp1.txt")
    assert ": beam of 2, length penalty 1 (gnmt), by torch in float32\n" in err
    hypotheses = lines_of(Path(facts["hypotheses_file"]))
    assert facts["num_sentences"] == len(hypotheses)
    assert facts["step"] == int(facts["checkpoint"].removeprefix("step_"))
    # More than are printed; the last of the test split has a word that training never saw.
    assert len(facts["worst"]) == 10
    worst = out.split("\nsentence ")[1:]
    assert len(worst) == 2
    reference = "das Zebra sieht Milch."
    assert worst[0].splitlines() == [
        f"22, chrF2++ {sacrebleu.sentence_chrf(hypotheses[-1], [reference], word_order=2).score:.2f}",
        "  source       the zebra sees milk.",
        f"  translation  {hypotheses[-1]}",
        f"  reference    {reference}",
    ]
    # More than are kept without being asked for.
    assert succeed("evaluate", "--worst", "11").out.count("\nsentence ") == 11


def test_outputs_for_other_tools_are_line_by_line(succeed: Call, tiny_corpus: Path, tmp_path: Path) -> None:
    outputs = tmp_path / "a" / "b"
    err = succeed("evaluate", "--scores-only", "--outputs", outputs).err
    assert f"for other tools: {outputs}/sources.txt, hypotheses.txt, references.txt\n" in err
    [hypotheses] = RUN.glob("hypotheses.test-*.txt")
    sides = {"sources": tiny_corpus / "test.en", "references": tiny_corpus / "test.de"}
    for name, file in {**sides, "hypotheses": hypotheses}.items():
        assert lines_of(outputs / f"{name}.txt") == lines_of(file)


def test_what_cannot_be_scored_or_written_is_refused_before_translating(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("mt.inference.translator.Translator.n_best")
    for command in (("evaluate",), ("compare", "tiny", "tiny")):
        assert "--json and --format are mutually exclusive" in refuse(*command, "--json", "--format", "md")
        assert "configuration of a Hub corpus" in refuse(*command, "--name", "de-en")
        assert "--length-penalty needs beam search" in refuse(*command, "--length-penalty", "2")
        assert "--length-normalization needs beam search" in refuse(
            *command, "--length-normalization", "mean"
        )
    for systems, says in (
        ("tiny", "give 2 to 26 systems to compare, not 1"),
        ("tiny " * 27, "give 2 to 26 systems to compare, not 27"),
        ("tiny nowhere", "no run in nowhere"),
        ("tiny nowhere.txt", "nowhere.txt"),
        ("a.txt b.txt --beam 5", "--beam needs a run"),
        ("a.txt b.txt --checkpoint latest", "--checkpoint needs a run"),
    ):
        assert says in refuse("compare", *systems.split())
    for precision in ("int8", "fp16"):
        assert f"on this device (cpu), not in {precision}" in refuse("evaluate", "--precision", precision)
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    assert "runs/tiny is read-only, but the translations are saved there" in refuse("evaluate")


def test_scores_side_by_side_and_the_sentences_that_differ_most(
    succeed: Call, tiny_corpus: Path, tmp_path: Path
) -> None:
    succeed("evaluate", "--checkpoint", "step_0000150", "--scores-only")
    (first,) = RUN.glob("hypotheses.test-*.step_0000150.greedy.txt")
    second = tmp_path / "mine.txt"
    hypotheses, references = lines_of(first), lines_of(tiny_corpus / "test.de")
    second.write_text("".join(f"{line}\n" for line in ["nichts", *references[1:]]), encoding="utf-8")
    # One run is enough for a beam.
    succeed("compare", "tiny", second, "--beam", "2", "--show", "0")
    compare = ("compare", first, second, "--show", "1")
    out = succeed(*compare).out
    table, *sentences = out.split("\nsentence ")
    lines = table.splitlines()
    assert lines[:3] == [f"A  {first}", f"B  {second}", f"22 sentences of {tiny_corpus}, test"]
    assert lines[4].split()[:3] == ["BLEU", "-", "A"]
    (_, a, *_), (_, b, gain, *_) = (line.split() for line in lines[5:7])
    assert a == f"{sacrebleu.corpus_bleu(hypotheses, [references]).score:.2f}"
    assert abs(float(gain) - (float(b) - float(a))) < 0.011
    assert re.findall(r"^(\S+) signature: nrefs:1\|", table, re.MULTILINE) == ["BLEU", "chrF2++", "TER"]
    scores = (
        sacrebleu.sentence_chrf(text, [references[0]], word_order=2).score
        for text in (hypotheses[0], "nichts")
    )
    source = lines_of(tiny_corpus / "test.en")[0]
    assert [sentence.splitlines() for sentence in sentences] == [
        [
            f"1, chrF2++ {', '.join(f'{score:.2f}' for score in scores)}",
            f"  source     {source}",
            f"  A          {hypotheses[0]}",
            "  B          nichts",
            f"  reference  {references[0]}",
        ]
    ]
    assert len(json.loads(succeed(*compare, "--json").out)["sentences"]) == 1


def test_another_test_set_is_scored_in_the_form_of_the_training_text(
    succeed: Call, tiny_corpus: Path
) -> None:
    source, target = (lines_of(tiny_corpus / f"train.{side}")[0] for side in ("en", "de"))
    Path("news.jsonl").write_text(json.dumps({"en": source, "de": f"{target[:1]}\u00ad{target[1:]}"}))
    for command in (
        ("evaluate",),
        ("compare", "tiny", "runs/tiny/checkpoints/step_0000150", "--beam", "2", "--show", "0"),
    ):
        _, out, err = succeed(*command, "--data", "news.jsonl")
        assert "scored in the form of the training text: 1 reference changed\n" in err
        assert "also in the training data: 1 of the 1 pairs of news.jsonl " in err
        assert "\nsentence " not in out
    out = succeed("compare", "tiny", "tiny", "--split", "validation", "--show", "0").out
    assert "12 sentences of " in out
    assert len(list(RUN.glob("hypotheses.*.beam2-lp1.txt"))) == 2
