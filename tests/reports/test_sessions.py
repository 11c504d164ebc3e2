"""The sessions that training records: each process that trained, how it ended, and its warnings."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mt.errors import DataError
from mt.reports.facts import RunFacts
from mt.reports.show import describe
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import MakeConfig


def facts_of(run: RunDirectory) -> RunFacts:
    return RunFacts(run)


def told(run: RunDirectory) -> list[str]:
    return [str(session) for session in facts_of(run).sessions]


def test_every_attempt_to_train_is_a_session_with_its_end(
    make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    corpus = tmp_path / "corpus"
    shutil.copytree(tiny_corpus, corpus)
    run_training(make_config(f"data.path={corpus}", "training.max_steps=2"), run)
    longer = make_config(f"data.path={corpus}", "training.max_steps=4", "validation.every_steps=2")
    corpus.rename(tmp_path / "moved")
    with pytest.raises(DataError):
        run_training(longer, run)
    (tmp_path / "moved").rename(corpus)
    run_training(longer, run)
    # A finished run is not trained again.
    run_training(longer, run)
    first, second, third = told(run)
    assert first.startswith("started; finished: training.max_steps (2) reached")
    assert second.startswith("did not begin; failed: ")
    assert third.startswith("resumed from step 2; finished: ")
    assert facts_of(run).sessions[-1].signatures["BLEU"].startswith("nrefs:1|")


def test_a_killed_session_has_a_start_and_no_end(
    make_config: MakeConfig, train_until: Callable[..., Any], tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    train_until(make_config(), run.path, step=5, crash=True)
    train_until(make_config(), run.path, step=7)
    killed, stopped = told(run)
    assert killed.startswith("started; nothing says how it ended")
    assert stopped.startswith("resumed from step 4; stopped at step 7, saved: ")
    with run.lock():
        assert told(run)[-1] == "resumed from step 4; still running"


def test_warnings_belong_to_their_session(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*_: object) -> None:
        logging.getLogger("mt.some.module").warning("beware of %s", "\x1b[31m")
        raise DataError("no.")

    monkeypatch.setattr("mt.training.run.train", warn)
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(DataError):
        run_training(make_config(), run)
    logging.getLogger("mt").warning("of somebody else")
    [session] = facts_of(run).sessions
    assert session.warnings[-1] == "beware of \x1b[31m"
    assert told(run) == ["started; failed: no."]
    assert "warning: beware of \\x1b[31m" in describe(facts_of(run))
