"""Comparing two systems: against sacreBLEU's paired test, and what belongs together."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from mt.cli.app import app
from mt.errors import CheckpointError, ConfigError, DataError, RunError
from mt.evaluation.compare import run_comparison
from mt.evaluation.evaluate import run_evaluation
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import MakeConfig

ARGUMENTS: dict[str, Any] = {"split": "test", "checkpoint": "latest", "device": torch.device("cpu")}


@pytest.fixture
def other(make_config: MakeConfig, tmp_path: Path) -> RunDirectory:
    """A run of twelve steps, which has learnt little."""
    run = RunDirectory(tmp_path / "runs" / "other")
    run_training(make_config(), run)
    return run


def test_runs_are_compared_and_the_files_of_their_translations_alike(
    trained: RunDirectory, other: RunDirectory, tiny_corpus: Path
) -> None:
    result = run_comparison((other.path, trained.path), **ARGUMENTS)
    files = [Path(file) for file in result.systems]
    references = (tiny_corpus / "test.de").read_text(encoding="utf-8").split("\n")[:-1]
    assert result.num_sentences == len(references)
    for compared, file in zip(result.scores["bleu"], files, strict=True):
        lines = file.read_text(encoding="utf-8").split("\n")[:-1]
        assert compared.score.value == sacrebleu.corpus_bleu(lines, [references]).score
    assert result.sentences
    assert run_comparison(files, **ARGUMENTS) == result
    # Neither is translated again, and one of each kind may stand beside the other.
    assert run_comparison((files[0], trained.path), **ARGUMENTS) == result


def test_the_table_says_what_is_not_significant(
    trained: RunDirectory, tiny_corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (tiny_corpus / "test.de").read_text(encoding="utf-8").splitlines()
    files = [trained.path / name for name in "abc"]
    for file, text in zip(files, (lines, lines, lines[::-1]), strict=True):
        file.write_text("\n".join(text) + "\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="0"):
        app(["compare", *map(str, files), "--device", "cpu"])
    shown = capsys.readouterr().out.split("\n")
    # A and B are the references, and C is far from them.
    assert "not significant by BLEU: B" in shown
    rows = [line.split() for line in shown if line[:3] in ("A  ", "B  ", "C  ") and ".00" in line]
    assert [row[1] for row in rows[:2]] == ["100.00", "100.00"]
    assert rows[1][2:4] == ["+0.00", "1.0000"]
    assert rows[2][2].startswith("-")


def test_what_does_not_belong_together_is_refused(
    trained: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, latin = tmp_path / "short", tmp_path / "latin"
    short.write_text("a\n")
    latin.write_bytes(b"a\n\xe4\n")
    with pytest.raises(DataError, match=f"{short} has 1 line, but .*, test has 22 references"):
        run_comparison((short, trained.path), **ARGUMENTS)
    assert not list(trained.path.glob("hypotheses.*"))
    with pytest.raises(DataError, match="latin, line 2 is not UTF-8"):
        run_comparison((latin, trained.path), **ARGUMENTS)
    with pytest.raises(CheckpointError, match="no checkpoint 'step_9'"):
        run_comparison((short, trained.path), **ARGUMENTS | {"checkpoint": "step_9"})
    with pytest.raises(ConfigError, match=f"none of {short}, {short} is in a run"):
        run_comparison((short, short), **ARGUMENTS)
    with pytest.raises(RunError, match="There is no run in"):
        run_comparison((trained.path, tmp_path), **ARGUMENTS)
    monkeypatch.setattr("mt.evaluation.compare.MAX_RESAMPLED_LINES", 21)
    with pytest.raises(DataError, match=r"22 sentences are too many .* compare at most 21"):
        run_comparison((trained.path, trained.path), **ARGUMENTS)


def test_sacrebleu_scores_the_two_files_alike(trained: RunDirectory, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [
        ("the dog sees milk.", "der Wach-\nhund sieht\nMilch."),
        ("Anna buys the car!", "Anna kauft\u2028das Auto!"),
        ("my aunt finds a house.", "meine Tante findet ein Haus."),
    ]
    pairs.write_text("".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in rows))
    result = run_evaluation(trained, **ARGUMENTS, data_path=str(pairs), analyse=False)
    # Whoever breaks lines at all that Unicode calls a line break reads as many.
    assert len(result.references_file.read_text(encoding="utf-8").splitlines()) == len(rows)
    files = str(result.references_file), "-i", str(result.hypotheses_file)
    command = [sys.executable, "-m", "sacrebleu", *files, "-b", "-w", "6"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(said) == pytest.approx(result.scores["bleu"].value, abs=1e-6)
