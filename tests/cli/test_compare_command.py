import json
import shutil
from collections.abc import Callable
from pathlib import Path

import sacrebleu

from mt.run_directory import RunDirectory
from tests.forked import Popen

Call = Callable[..., tuple[int, str, str]]
Start = Callable[..., Popen]


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
    name, a, b, gain, *_ = next(line for line in lines if line.startswith("BLEU ")).split()
    hypotheses = first.read_text(encoding="utf-8").splitlines()
    assert name == "BLEU"
    assert a == f"{sacrebleu.corpus_bleu(hypotheses, [references]).score:.2f}"
    assert abs(float(gain) - (float(b) - float(a))) < 0.011
    assert out.count("\nsentence ") == 1
    assert "  B          nichts\n" in out
    assert len(json.loads((tmp_path / "c.json").read_text())["sentences"]) == 1


def test_no_input_is_replaced_by_the_results(call: Call, trained: RunDirectory) -> None:
    for name in ("a", "b", "ref"):
        Path(name).write_text("Nein\n", encoding="utf-8")
    for name in ("a", "b", "ref"):
        code, _, err = call("compare", "a", "b", "--references", "ref", "--json", name)
        assert (code, f"{name} would be replaced" in err) == (2, True)
        assert Path(name).read_text(encoding="utf-8") == "Nein\n"
    config = trained.config_file.read_bytes()
    for arguments in (("compare", trained.path, "b"), ("evaluate", "--run", trained.path)):
        code, _, err = call(*arguments, "--json", trained.config_file)
        assert (code, "would be replaced" in err) == (2, True)
        # A file of the corpus that is no other input.
        code, _, err = call(*arguments, "--data", "a,ref", "--json", "ref")
        assert (code, "ref would be replaced" in err) == (2, True)
    assert trained.config_file.read_bytes() == config


def test_no_file_of_a_run_or_of_its_corpus_is_replaced(
    call: Call, trained: RunDirectory, tiny_corpus: Path
) -> None:
    copied = Path(shutil.copytree(trained.path, "other"))
    corpus = Path(shutil.copytree(tiny_corpus, "corpus"))
    checkpoint = next(trained.checkpoints_dir.glob("step_*"))
    lines = trained.hypotheses_file("x")
    for file in (lines, Path("b")):
        file.write_text("Nein\n", encoding="utf-8")
    evaluating = ("evaluate", "--run", trained.path)
    for *command, out in (
        (*evaluating, "--ensemble", copied, "--json", copied / "src_tokenizer.json"),
        (*evaluating, "--json", copied / "src_tokenizer.json"),
        ("evaluate", "--run", copied, "--data", corpus / "test.de", "--json", corpus / "test.de"),
        ("compare", checkpoint, "b", "--json", checkpoint / "checkpoint.json"),
        ("compare", lines, "b", "--json", trained.config_file),
        ("report", "--run", trained.path, "--out", trained.corpus_file),
    ):
        before = Path(out).read_bytes()
        code, _, err = call(*command, out)
        assert (code, f"{out} would be replaced" in err) == (2, True), command
        assert Path(out).read_bytes() == before


def test_runs_translate_with_the_given_decoding_strategy(call: Call, trained: RunDirectory) -> None:
    search = ["--beam", "2", "--length-penalty", "0.5", "--length-normalization", "mean"]
    code, out, _ = call("compare", trained.path, trained.path, "--checkpoint", "latest", *search)
    (file,) = trained.path.glob("hypotheses.test-*.step_0000200.beam2-lp0.5-mean.txt")
    assert (code, out.splitlines()[0]) == (0, f"A  {file}")


def test_missing_files_and_contradictory_options_are_refused(call: Call, trained: RunDirectory) -> None:
    code, _, err = call("compare", trained.path, "nowhere")
    assert (code, err) == (2, "mt: there is no nowhere: give a run directory or a file of translations.\n")
    refused = call("compare", trained.path, trained.path, "--references", "x", "--name", "y")
    assert (refused[0], "--name is for --data" in refused[2]) == (2, True)
    refused = call("compare", trained.path, trained.path, "--references", "x", "--split", "validation")
    assert (refused[0], "--split names a split of a run's corpus" in refused[2]) == (2, True)
    code, _, err = call("compare", trained.path, trained.path, "--references", "x", "--data", "y")
    assert (code, err) == (
        2,
        "mt: --references and --data are mutually exclusive: give one of them.\n",
    )


def test_a_difference_that_may_be_chance_is_called_so(call: Call, tmp_path: Path) -> None:
    lines = [f"der {word} Hund läuft über die Straße Nummer {i}." for i, word in enumerate("abcdefghij" * 3)]
    texts = {
        "ref": lines,
        "chance": [lines[0].replace("Hund", "Mund"), *lines[1:]],
        "other": [*lines[:-1], lines[-1].replace("Hund", "Mund")],
        "worse": [line.replace("läuft über", "geht auf") for line in lines],
    }
    for name, text in texts.items():
        (tmp_path / name).write_text("\n".join(text) + "\n", encoding="utf-8")

    def verdict(first: str, second: str) -> str:
        out = call("compare", tmp_path / first, tmp_path / second, "--references", tmp_path / "ref")[1]
        return next(line for line in out.splitlines() if line.startswith("BLEU "))

    assert verdict("chance", "other").endswith("  not significant")
    assert "significant" not in verdict("worse", "ref")
