"""The sessions that a log tells of: each process that trained, and nothing of another one's."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.config import Config
from mt.errors import DataError
from mt.reports.log import read_log
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
