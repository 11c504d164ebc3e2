"""Comparing two systems: against sacreBLEU's paired test, and what belongs together."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from mt.config.config import Config
from mt.errors import CheckpointError, ConfigError, DataError, RunError
from mt.evaluation import scores
from mt.evaluation.compare import run_comparison, write_comparison
from mt.evaluation.evaluate import run_evaluation
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.training.run import run_training

ARGUMENTS: dict[str, Any] = {"split": "test", "checkpoint": "latest", "device": torch.device("cpu")}


@pytest.fixture
def other(make_config: Callable[..., Config], tmp_path: Path) -> RunDirectory:
    """A run of twelve steps, which has learnt little."""
    run = RunDirectory(tmp_path / "runs" / "other")
    run_training(make_config(), run)
    return run


def test_two_runs(trained: RunDirectory, other: RunDirectory, tiny_corpus: Path, tmp_path: Path) -> None:
    result = run_comparison((other.path, trained.path), **ARGUMENTS)
    first, second = (Path(file).read_text(encoding="utf-8").split("\n")[:-1] for file in result.systems)
    references = (tiny_corpus / "test.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert result.num_sentences == len(references)
    bleu = result.scores["bleu"]
    assert bleu.first.value == sacrebleu.corpus_bleu(first, [references]).score
    assert bleu.second.value == sacrebleu.corpus_bleu(second, [references]).score
    differing = [i for i, (a, b) in enumerate(zip(first, second, strict=True), 1) if a != b]
    assert differing
    assert {each.number for each in result.sentences} <= set(differing)
    sources = (tiny_corpus / "test.en").read_text(encoding="utf-8").split("\n")
    for each in result.sentences:
        place = each.number - 1
        assert each.translations == (first[place], second[place])
        assert (each.source, each.reference) == (sources[place], references[place])
    write_comparison(result, tmp_path / "c.json")
    facts = json.loads((tmp_path / "c.json").read_text(encoding="utf-8"))
    assert facts["scores"]["bleu"]["p_value"] == bleu.p_value


def test_comparing_files_of_a_run_equals_comparing_the_run(
    trained: RunDirectory, other: RunDirectory
) -> None:
    of_runs = run_comparison((other.path, trained.path), **ARGUMENTS)
    files = Path(of_runs.systems[0]), Path(of_runs.systems[1])
    assert run_comparison(files, **ARGUMENTS) == of_runs
    # Neither is translated again, and one of each kind may stand beside the other.
    assert run_comparison((files[0], trained.path), **ARGUMENTS) == of_runs


def test_two_files_with_references(tmp_path: Path) -> None:
    texts = {
        "a": "Da lief ein Hund.\n\n",
        "b": "Da lief ein Mund.\r\n\r\n",
        "ref": "Da lief ein Hund.\nJa.\n",
    }
    a, b, references = (tmp_path / name for name in texts)
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text.encode())
    result = run_comparison((a, b), **ARGUMENTS, references=references)
    assert [(each.number, each.source, each.translations) for each in result.sentences] == [
        (1, None, ("Da lief ein Hund.", "Da lief ein Mund."))
    ]
    assert result.scores["bleu"].gain < 0
    assert result.scores["ter"].gain > 0


def test_what_does_not_belong_together_is_refused(trained: RunDirectory, tmp_path: Path) -> None:
    short, references, latin = tmp_path / "short", tmp_path / "ref", tmp_path / "latin"
    short.write_text("a\n")
    references.write_text("a\n\n")
    latin.write_bytes(b"a\n\xe4\n")
    with pytest.raises(DataError, match=f"{short} has 1 line, but .*, test has 22 references"):
        run_comparison((short, trained.path), **ARGUMENTS)
    assert not list(trained.path.glob("hypotheses.*"))
    with pytest.raises(DataError, match="ref, sentence 2: the reference is empty"):
        run_comparison((short, short), **ARGUMENTS, references=references)
    with pytest.raises(DataError, match="latin cannot be read: line 2 is not UTF-8"):
        run_comparison((latin, trained.path), **ARGUMENTS)
    with pytest.raises(ConfigError, match="a file of references has none"):
        run_comparison((short, trained.path), **ARGUMENTS, references=references)
    with pytest.raises(ConfigError, match=f"neither {short} nor {short} is in a run"):
        run_comparison((short, short), **ARGUMENTS)
    with pytest.raises(RunError, match="There is no run in"):
        run_comparison((trained.path, tmp_path), **ARGUMENTS)


def test_translations_of_another_split_are_refused(trained: RunDirectory) -> None:
    arguments = ARGUMENTS | {"split": "validation"}
    file = run_evaluation(trained, **arguments, analyse=False).hypotheses_file
    with pytest.raises(ConfigError, match=f"{file} has translations of the validation split, not of test"):
        run_comparison((file, file), **ARGUMENTS)
    assert run_comparison((file, file), **arguments).num_sentences == 12


def test_other_languages_are_refused(trained: RunDirectory, other: RunDirectory) -> None:
    text = other.config_file.read_text()
    other.config_file.write_text(text.replace("src: en", "src: de").replace("tgt: de", "tgt: en"))
    with pytest.raises(ConfigError, match=r"translates from en to de, but .* from de to en"):
        run_comparison((trained.path, other.path), **ARGUMENTS)


@pytest.mark.parametrize("beam", [None, Beam(2)], ids=["greedy", "beam"])
def test_a_file_that_the_translations_of_the_run_would_replace_is_kept(
    beam: Beam | None, trained: RunDirectory, tmp_path: Path
) -> None:
    arguments = ARGUMENTS | {"beam": beam}
    file = run_evaluation(trained, **arguments, analyse=False).hypotheses_file
    edited = file.read_text(encoding="utf-8").replace("sieht", "findet")
    file.write_text(edited, encoding="utf-8")
    link = tmp_path / "link.txt"
    link.symlink_to(file)
    for given in (file, link):
        for systems in ((given, trained.path), (trained.checkpoints_dir / "step_0000200", given)):
            with pytest.raises(ConfigError, match=rf"{given} is the file .* a copy of the file"):
                run_comparison(systems, **arguments)
    assert file.read_text(encoding="utf-8") == edited
    copy = tmp_path / "copy.txt"
    copy.write_text(edited, encoding="utf-8")
    result = run_comparison((trained.path, copy), **arguments)
    assert result.scores["bleu"].gain < 0
    assert file.read_text(encoding="utf-8") != edited


def test_one_checkpoint_against_another(trained: RunDirectory) -> None:
    arguments = ARGUMENTS | {"checkpoint": "step_0000100"}
    file = run_evaluation(trained, **arguments, analyse=False).hypotheses_file
    result = run_comparison((file, trained.path), **ARGUMENTS)
    assert "step_0000100" in result.systems[0]
    assert "step_0000200" in result.systems[1]


@pytest.fixture
def other_corpus(tiny_corpus: Path, tmp_path: Path) -> Path:
    """As many test sentences as the tiny corpus has, but others."""
    folder = Path(shutil.copytree(tiny_corpus, tmp_path / "other_corpus"))
    for language in ("en", "de"):
        lines = (folder / f"train.{language}").read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / f"test.{language}").write_text("".join(lines[:22]), encoding="utf-8")
    return folder


def set_corpus(run: RunDirectory, corpus: Path) -> None:
    text = run.config_file.read_text()
    old = next(line for line in text.splitlines() if line.startswith("  path:"))
    run.config_file.write_text(text.replace(old, f'  path: "{corpus}"'))


def test_translations_of_another_corpus_are_kept_in_another_file(
    trained: RunDirectory, other: RunDirectory, other_corpus: Path
) -> None:
    set_corpus(other, other_corpus)
    own = run_evaluation(other, **ARGUMENTS, analyse=False).hypotheses_file
    before = own.read_bytes()
    files = run_comparison((trained.path, other.path), **ARGUMENTS).systems
    assert own.read_bytes() == before
    assert Path(files[1]).parent == other.path
    assert files[1] != str(own)
    # Those of other sentences are refused where the references are not theirs, though there are as many.
    with pytest.raises(ConfigError, match=r"contains translations of other sentences than .* references"):
        run_comparison((Path(files[0]), own), **ARGUMENTS)
    assert run_comparison((own, own), **ARGUMENTS).data.startswith(str(other_corpus))


def test_files_of_older_versions_have_no_checksum_and_are_compared(trained: RunDirectory) -> None:
    result = run_evaluation(trained, **ARGUMENTS, analyse=False)
    old = [
        trained.path / f"hypotheses.{setting}.step_0000200.greedy.txt"
        for setting in ("test", "corpus.test-1a2b3c4d")
    ]
    for file in old:
        file.write_bytes(result.hypotheses_file.read_bytes())
    found = run_comparison((old[0], old[1]), **ARGUMENTS)
    assert found.scores["bleu"].second.value == result.scores["bleu"].value


def test_sacrebleu_scores_the_two_files_alike(trained: RunDirectory, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [
        ("the dog sees milk.", "der Wach-\nhund sieht\nMilch."),
        ("Anna buys the car!", "Anna kauft\u2028das Auto!"),
        ("my aunt finds a house.", "meine Tante findet ein Haus."),
    ]
    pairs.write_text("".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in rows))
    result = run_evaluation(trained, **ARGUMENTS, data_path=str(pairs), analyse=False)
    files = str(result.references_file), "-i", str(result.hypotheses_file)
    command = [sys.executable, "-m", "sacrebleu", *files, "-b", "-w", "6"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(said) == pytest.approx(result.scores["bleu"].value, abs=1e-6)


def test_what_cannot_be_compared_is_known_before_anything_is_translated(
    trained: RunDirectory, other: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint 'step_0000200'"):
        run_comparison((trained.path, other.path), **ARGUMENTS | {"checkpoint": "step_0000200"})
    monkeypatch.setattr(scores, "MAX_RESAMPLED_LINES", 21)
    with pytest.raises(DataError, match="22 sentences are too many"):
        run_comparison((trained.path, other.path), **ARGUMENTS)
    monkeypatch.setenv("SACREBLEU_SEED", "-1")
    with pytest.raises(ConfigError, match="SACREBLEU_SEED is '-1' in the environment"):
        run_comparison((trained.path, other.path), **ARGUMENTS)
    assert not [*trained.path.glob("hypotheses.*"), *other.path.glob("hypotheses.*")]


def test_a_checkpoint_may_be_named_from_within_its_folder(
    trained: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained.checkpoints_dir)
    result = run_comparison((Path("step_0000100"), Path("step_0000200")), **ARGUMENTS)
    assert ".step_0000100." in result.systems[0]
    assert ".step_0000200." in result.systems[1]


def test_two_checkpoints_of_one_run(trained: RunDirectory) -> None:
    earlier = trained.checkpoints_dir / "step_0000100"
    result = run_comparison((earlier, trained.path), **ARGUMENTS)
    assert ".step_0000100." in result.systems[0]
    assert ".step_0000200." in result.systems[1]
    file = run_evaluation(
        trained, split="test", checkpoint="step_0000100", device="cpu", analyse=False
    ).hypotheses_file
    assert run_comparison((file, trained.path), **ARGUMENTS).scores == result.scores
