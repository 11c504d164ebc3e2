"""Numbers that go wrong: their step is skipped, and a run that diverges ends with a sentence."""

import math
from typing import Any

import pytest
import torch

import mt.training.run
from mt.device import Precision
from mt.errors import RunError
from mt.reports.facts import read_sessions
from mt.run_directory import RunDirectory
from mt.training.loss import Objective
from mt.training.step import LaunchedStep, StepResult
from mt.training.train_state import TrainState
from tests.training.steps import Training, spoil


def test_a_step_with_nan_is_skipped_and_named(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of twelve steps, the second micro-batch of step 7 goes wrong.
    spoil(monkeypatch, {14})
    assert train().counters.num_skipped_steps == 1
    logged = (run.path / "train.log").read_text(encoding="utf-8").splitlines()
    warnings = [line.partition(" WARNING ")[2] for line in logged if " WARNING " in line]
    assert warnings[-1] == "step 7 skipped: the gradient norm is nan, the loss is nan"


def test_a_scale_of_fp16_that_falls_skips_no_step_for_its_numbers(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mt")

    def scaled(name: Any, device: torch.device, *, tf32: bool) -> Precision:
        precision = Precision("float32", device, tf32=tf32)
        # The loss is still a number, its gradient is not any more, and so it takes some steps.
        precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
        return precision

    monkeypatch.setattr(mt.training.run, "Precision", scaled)
    forward = Objective.forward
    monkeypatch.setattr(Objective, "forward", lambda self, *a: forward(self, *a) * 50)
    state = train("training.max_skipped_steps=1").counters
    assert state.step == 12
    assert 1 < state.num_scaler_skips < 12
    assert (state.num_skipped_steps, state.num_skipped_in_a_row) == (0, 0)
    assert caplog.text.count("the fp16 loss scale was too large and is lowered") == state.num_scaler_skips


def test_steps_in_a_row_that_are_skipped_are_an_error_in_the_end(
    train: Training, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = ("training.num_micro_batches=1", "training.max_skipped_steps=3", "checkpoint.every_steps=1")
    with monkeypatch.context() as patch:
        spoil(patch, {1, 5, *range(7, 100)})
        with pytest.raises(RunError, match="in 3 steps in a row, the last at step 9"):
            train(*options)
    assert caplog.text.count("skipped: the gradient norm is nan") == 5
    # What was saved last is not spoilt: resuming continues from there, with the counters as they were.
    counters = train(*options).counters
    assert (counters.step, counters.num_skipped_steps) == (12, 4)


STEEP = "schedule.kind=constant", "schedule.warmup_steps=0", "training.clip_norm=null"


def test_a_validation_that_cannot_search_says_that_training_has_diverged(
    train: Training, run: RunDirectory
) -> None:
    with pytest.raises(RunError, match=r"logits are NaN .* at step \d\. Try a lower schedule") as raised:
        train(*STEEP, "schedule.learning_rate=1e30", "validation.every_steps=1")
    assert all(flag in str(raised.value) for flag in ("--run PATH", "--restart"))
    [session] = read_sessions(run)
    assert session.outcome == f"Failed: {raised.value}"


def test_weights_that_are_not_finite_are_never_saved(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = TrainState.finish

    def one_weight_nan(self: TrainState, step: LaunchedStep) -> StepResult:
        result = finish(self, step)
        if step.counters.step == 5:
            with torch.no_grad():
                self.objective.model.output.weight[0, 0] = math.nan
        return result

    options = ("checkpoint.every_steps=1", "checkpoint.keep=1", "validation.every_steps=100")
    with monkeypatch.context() as patch:
        patch.setattr(TrainState, "finish", one_weight_nan)
        with pytest.raises(RunError, match=r"model weights are NaN or infinite at step 5\. Try"):
            train(*options)
    assert (run.checkpoints_dir / "latest").read_text() == "step_0000004\n"
    assert train(*options).counters.step == 12
