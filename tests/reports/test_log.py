"""The sessions that a log tells of: each process that trained, and nothing of another one's."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.errors import DataError, RunError
from mt.reports.log import read_log
from mt.reports.story import told
from mt.run_directory import RunDirectory
from mt.training.run import run_training

MakeConfig = Callable[..., Config]


def test_an_attempt_that_fails_is_a_session_of_its_own(
    make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="mt")
    run = RunDirectory(tmp_path / "run")
    corpus = tmp_path / "corpus"
    shutil.copytree(tiny_corpus, corpus)
    run_training(make_config(f"data.path={corpus}", "training.max_steps=2"), run)
    longer = make_config(f"data.path={corpus}", "training.max_steps=4")
    corpus.rename(tmp_path / "moved")
    with pytest.raises(DataError):
        run_training(longer, run)
    (tmp_path / "moved").rename(corpus)
    run_training(longer, run)
    # A finished run is not trained again.
    run_training(longer, run)
    sessions = read_log(run.log_file).sessions
    assert [str(each.outcome).split(" ")[0] for each in sessions] == ["Finished:", "Failed:", "Finished:"]
    assert [each.first_step for each in sessions] == [0, 0, 2]


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
def test_a_session_that_fails_before_training_did_not_begin(
    level: str,
    make_config: MakeConfig,
    tiny_corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The Python API logs nothing below WARNING unless it is told to.
    caplog.set_level(level, logger="mt")
    run = RunDirectory(tmp_path / "run")
    corpus = tmp_path / "corpus"
    shutil.copytree(tiny_corpus, corpus)

    def fail(*_: object) -> None:
        raise DataError("no.")

    def attempt(max_steps: int, where: str | None = None) -> None:
        with monkeypatch.context() as patch:
            if where:
                patch.setattr(f"mt.training.run.{where}", fail)
            run_training(make_config(f"data.path={corpus}", f"training.max_steps={max_steps}"), run)

    with pytest.raises(DataError):
        attempt(2, "train")
    attempt(2)
    with pytest.raises(DataError):
        attempt(4, "new_train_state")
    with pytest.raises(DataError):
        attempt(4, "train")
    with (corpus / "train.en").open("a") as src, (corpus / "train.de").open("a") as tgt:
        src.write("one more\n")
        tgt.write("noch eins\n")
    with pytest.raises(RunError, match="the corpus is not the one"):
        attempt(4)
    found = [told(each, is_running=False) for each in read_log(run.log_file).sessions]
    assert found[0] == "started; failed: no."
    if level == "INFO":
        assert found[1].startswith("started; finished: ")
    assert found[2] == "did not begin; failed: no."
    assert found[3] == "resumed from step 2; failed: no."
    assert found[4].startswith("did not begin; failed: the corpus is not the one")


def test_what_comes_before_the_corpus_belongs_to_the_session(tmp_path: Path) -> None:
    at = "2026-01-01 00:00:0"
    first = f"{at}1,000 WARNING of the first\n{at}2,000 INFO corpus: 8 training pairs\n"
    later = f"{at}4,000 WARNING of the second\n{at}5,000 INFO corpus: 8 training pairs\n"
    file = tmp_path / "train.log"
    file.write_text(f"{at}0,000 INFO training in run\n{first}{at}3,000 INFO training in run\n{later}")
    assert [(each.started[-1], each.warnings) for each in read_log(file).sessions] == [
        ("0", ["of the first"]),
        ("3", ["of the second"]),
    ]
    # A log of an earlier version does not say where a session begins.
    file.write_text(first + later)
    assert [each.started[-1] for each in read_log(file).sessions] == ["1", "5"]
