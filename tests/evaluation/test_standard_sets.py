"""Standard test sets from a cache of sacreBLEU's that is made up, and from a network that is not there."""

import io
import json
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from sacrebleu.dataset import DATASETS

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.training import TrainingConfig
from mt.errors import ConfigError, DataError
from mt.evaluation.test_set import load_evaluation_set, load_standard_set

DATA = DataConfig(path="x", src="en", tgt="de", hub_timeout_seconds=1)
SOURCES = ["The dog.", "A  house ", "Milk!"]
REFERENCES = ["Der Hund.", "Ein Haus", "Milch!"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """sacreBLEU's folder with three lines of WMT 2014, written by hand."""
    wmt14: Any = DATASETS["wmt14"]
    monkeypatch.setattr(wmt14, "_outdir", str(tmp_path / "wmt14"))
    monkeypatch.setattr(wmt14, "_rawdir", str(tmp_path / "wmt14" / "raw"))
    (tmp_path / "wmt14").mkdir()
    for field in wmt14.fieldnames("en-de"):
        lines = {"src": SOURCES, "ref": REFERENCES}.get(field, ["x"] * 3)
        file = Path(wmt14._get_txt_file_path("en-de", field))
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return tmp_path


def test_lines_are_those_that_sacrebleu_scores_against(cache: Path) -> None:
    pairs = load_standard_set("wmt14", DATA)
    assert pairs["src"][:] == ["The dog.", "A  house", "Milk!"]
    assert pairs["tgt"][:] == REFERENCES
    hypotheses = cache / "hypotheses"
    hypotheses.write_text("Der Hund.\nDas Haus\nMilch!\n")
    command = [sys.executable, "-m", "sacrebleu", "-t", "wmt14", "-l", "en-de"]
    ended = subprocess.run(
        [*command, "-i", hypotheses, "-m", "chrf", "-w", "10"],
        capture_output=True,
        encoding="utf-8",
        env={"SACREBLEU": str(cache), "PATH": ""},
        check=True,
    )
    expected = json.loads(ended.stdout)["score"]
    found = sacrebleu.corpus_chrf(["Der Hund.", "Das Haus", "Milch!"], [REFERENCES]).score
    assert found == pytest.approx(expected, abs=1e-9)
    config = Config(data=DATA, training=TrainingConfig(max_steps=1))
    with pytest.raises(ConfigError, match="'de-en' is the configuration of a Hub corpus"):
        load_evaluation_set(config, "test", path="sacrebleu:wmt14", name="de-en")
    test_set = load_evaluation_set(config, "test", path="sacrebleu:wmt14")
    assert (test_set.sources, test_set.where) == (pairs["src"][:], "sacrebleu:wmt14")
    assert test_set.name.startswith("sacrebleu-wmt14-")


def test_what_cannot_be_scored_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="has no test set 'wmt1'"):
        load_standard_set("wmt1", DATA)
    with pytest.raises(DataError, match=r"wmt14 has no en-it, only .*en-de"):
        load_standard_set("wmt14", DATA.model_copy(update={"tgt": "it"}))
    wmt14: Any = DATASETS["wmt14"]
    file = Path(wmt14._get_txt_file_path("en-de", "ref"))
    file.write_text("Der Hund.\n")
    with pytest.raises(DataError, match=r"wmt14 is missing or incomplete .* it is damaged.* Remove that"):
        load_standard_set("wmt14", DATA)
    for field in ("src", "ref:A", "ref:B"):
        Path(wmt14._get_txt_file_path("en-de", field)).write_text("x\n")
    monkeypatch.setattr(wmt14, "fieldnames", lambda languages: ["src", "ref:A", "ref:B"])
    with pytest.raises(DataError, match="several references for each sentence of en-de"):
        load_standard_set("wmt14", DATA)


def refuse(url: object) -> None:
    raise urllib.error.URLError("Name or service not known")


def break_off(url: object) -> None:
    raise IncompleteRead(b"half")


def send_something_else(url: object) -> io.BytesIO:
    return io.BytesIO(b"another file")


@pytest.mark.parametrize("answer", [refuse, break_off, send_something_else])
def test_a_download_that_fails_is_one_sentence(
    cache: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[object], object]
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", answer)
    with pytest.raises(DataError, match=r"wmt14 is missing .*could not be downloaded.* try again online"):
        load_standard_set("wmt14", DATA.model_copy(update={"src": "fr", "tgt": "en"}))
