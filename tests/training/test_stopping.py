"""A run that is asked to stop in any of its phases stops soon, loses nothing, and continues exactly."""

import os
import shutil
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import mt.checkpoint.store
import mt.data.prepare
import mt.training.run
from mt.checkpoint.store import CheckpointStore
from mt.errors import DataError
from mt.inference.torch_engine import TorchEngine
from mt.run_directory import RunDirectory
from mt.training.loss import Objective
from mt.training.progress import Progress
from tests.fixture_types import AssertSame
from tests.training.steps import Training, assert_equal, kill_at_call, raising


@pytest.fixture
def assert_as_unbroken(run: RunDirectory, unbroken: RunDirectory, assert_same: AssertSame) -> AssertSame:
    """The run has written what one has written that was never stopped."""
    return partial(assert_same, run, unbroken)


SEARCH, LOSS, WRITE = (TorchEngine, "_search"), (Objective, "forward"), (Path, "write_bytes")


@pytest.mark.parametrize(
    ("function", "call", "num_calls", "step"),
    [
        # Twelve sentences, four at a time: calls 1 to 3 are the validation at step 4, 5 is in that at step 8.
        (SEARCH, 1, 1, 4),
        (SEARCH, 3, 3, 4),
        (SEARCH, 5, 5, 8),
        # Four steps of two micro-batches, then the first batch of the validation's loss.
        (LOSS, 9, 9, 4),
        # A checkpoint has four files, which are all written.
        (WRITE, 1, 4, 3),
        (WRITE, 4, 4, 3),
    ],
)
def test_a_validation_is_given_up_between_any_batches_and_a_save_is_completed(
    function: tuple[Any, str],
    call: int,
    num_calls: int,
    step: int,
    train: Training,
    run: RunDirectory,
    assert_as_unbroken: AssertSame,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = kill_at_call(patch, *function, call)
        outcome = train("validation.batch_sentences=4")
    assert (outcome.finished, outcome.exit_code, outcome.counters.step) == (None, 143, step)
    assert len(calls) == num_calls
    assert outcome.counters.owes_validation == (step % 4 == 0)
    recovered, damaged = CheckpointStore(run.checkpoints_dir).recover()
    assert recovered is not None
    assert (recovered.checkpoint.step, damaged) == (step, {})
    assert train("validation.batch_sentences=4").counters.step == 12
    assert_as_unbroken()


def test_no_further_batch_of_the_loss_is_computed(train: Training) -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = kill_at_call(patch, *LOSS, 9)
        # With several batches in a validation.
        assert train("training.batch_tokens=40").counters.step == 4
    assert len(calls) == 9


def test_the_last_validation_too_is_owed_and_made_good(
    train: Training, assert_as_unbroken: AssertSame
) -> None:
    outcome = train(step=12)
    for _ in range(2):
        assert (outcome.finished, outcome.counters.step, outcome.exit_code) == (None, 12, 143)
        assert outcome.counters.owes_validation
        with pytest.MonkeyPatch.context() as patch:
            kill_at_call(patch, TorchEngine, "_search", 1)
            outcome = train()
    outcome = train()
    assert outcome.finished == "training.max_steps (12) reached"
    assert not outcome.was_finished
    assert train().was_finished
    assert_as_unbroken()


def test_a_crash_after_an_owed_validation_was_logged_logs_it_once(
    train: Training, run: RunDirectory, assert_as_unbroken: AssertSame
) -> None:
    train(step=8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointStore, "save", raising(ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            train()
    assert '"step": 8, "epoch": 1, "num_target' in run.metrics_file.read_text().splitlines()[-1]
    train()
    # TensorBoard has been told twice.
    assert_as_unbroken(curves=False)


@pytest.mark.parametrize(
    ("name", "number"),
    [("load_corpus", signal.SIGINT), ("train_tokenizer", signal.SIGTERM), ("encode_pairs", signal.SIGUSR1)],
)
def test_loading_data_ends_at_once(
    name: str, number: signal.Signals, train: Training, run: RunDirectory, unbroken: RunDirectory
) -> None:
    after: list[int] = []

    def interrupted(*arguments: Any, **named: Any) -> None:
        os.kill(os.getpid(), number)
        after.append(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mt.data.prepare, name, interrupted)
        outcome = train()
    assert after == []
    assert (outcome.finished, outcome.exit_code, outcome.counters.step) == (None, 128 + number, 0)
    assert repr(outcome) == "<Outcome: interrupted, and can be resumed, after 0 steps>"
    assert f"Stopped before the first step: {number.name}." in run.sessions_file.read_text()
    assert run.stopped_file.read_text() == f"{number.name}\n"
    assert not run.checkpoints_dir.exists()
    train("training.max_steps=5")
    if name != "train_tokenizer":  # Which a resumed run does not do.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mt.data.prepare, name, interrupted)
            outcome = train()
        assert (outcome.exit_code, outcome.counters.step) == (128 + number, 5)
    train("checkpoint.every_steps=1")
    weights = [load_file(r.checkpoints_dir / "step_0000012" / "model.safetensors") for r in (run, unbroken)]
    assert_equal(*weights)


@pytest.mark.parametrize("call", [5, 8])
def test_a_second_ctrl_c_ends_a_save_at_once_and_harms_nothing(
    call: int, train: Training, run: RunDirectory, assert_as_unbroken: AssertSame
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        calls = kill_at_call(patch, Path, "write_bytes", call, signal.SIGINT, times=2)
        with pytest.raises(KeyboardInterrupt):
            train("checkpoint.every_steps=2")
    assert len(calls) == call
    assert [path.name for path in run.checkpoints_dir.glob("*step*")] == ["step_0000002"]
    assert train().counters.step == 12
    assert_as_unbroken()


def test_when_the_time_is_up_the_run_is_saved_and_there_is_more_to_do(
    train: Training, run: RunDirectory, assert_as_unbroken: AssertSame, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mt")
    with pytest.MonkeyPatch.context() as patch:
        # The alarm that rings when the time is up; how fast this machine is makes no difference so.
        kill_at_call(patch, Progress, "step", 7, signal.SIGALRM)
        outcome = train(max_seconds=1234.5)
    assert (outcome.finished, outcome.exit_code, outcome.counters.step) == (None, 75, 7)
    assert "Stopped at step 7, saved: the time is up." in run.log_file.read_text()
    # It is a limit of the session, not of the run.
    assert "1234.5" not in run.config_file.read_text()
    assert 1234.5 not in vars(outcome.counters).values()
    assert run.stopped_file.read_text() == "the time is up\n"
    # A start that is refused leaves it there, for a job script to see.
    with pytest.raises(DataError, match="nowhere"):
        train("data.path=nowhere")
    assert run.stopped_file.exists()
    # A limit that is already reached ends the run as well, or a job script would wait for more.
    shorter = RunDirectory(Path(shutil.copytree(run.path, run.path.with_name("shorter"))))
    outcome = train("training.max_steps=7", into=shorter)
    assert outcome.finished == "training.max_steps (7) reached"
    assert not shorter.stopped_file.exists()
    # It has been validated by now, so that there is nothing left to do.
    shorter.stopped_file.write_text("the time is up\n")
    assert train("training.max_steps=7", into=shorter).was_finished
    assert not shorter.stopped_file.exists()
    train()
    assert not run.stopped_file.exists()
    assert_as_unbroken()


def test_time_that_is_up_before_a_restart_leaves_the_old_run_where_it_is(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("training.max_steps=1")
    monkeypatch.setattr(mt.training.run, "load_corpus", lambda *_: time.sleep(30))
    assert train(restart=True, max_seconds=0.05).exit_code == 75
    assert [path.name for path in run.path.parent.iterdir()] == [run.path.name]
    assert (run.checkpoints_dir / "step_0000001").is_dir()
