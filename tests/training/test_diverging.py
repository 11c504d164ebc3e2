"""A run whose numbers go to infinity ends with a sentence, on stderr and in its log, and loses nothing."""

import logging
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mt.config.config import Config
from mt.errors import TrainingError
from mt.reports.sessions import read_sessions
from mt.run_directory import RunDirectory
from mt.training.metrics_file import read_points
from mt.training.run import run_training
from mt.training.step import LaunchedStep, StepResult
from mt.training.train_state import TrainState
from mt.training.validation import ValidationResult

MakeConfig = Callable[..., Config]

STEEP = "schedule.kind=constant", "schedule.warmup_steps=0", "training.clip_norm=null"


def test_a_validation_that_cannot_search_says_that_training_has_diverged(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "run")
    config = make_config(*STEEP, "schedule.learning_rate=1e30", "validation.every_steps=1")
    with pytest.raises(TrainingError, match=r"logits are NaN .* at step \d\. Try a lower schedule") as raised:
        run_training(config, run)
    assert all(flag in str(raised.value) for flag in ("--run PATH", "--restart"))
    [session] = read_sessions(run)
    assert session.outcome == f"Failed: {raised.value}"


def test_weights_that_are_not_finite_are_never_saved(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "run")
    finish = TrainState.finish

    def spoil(self: TrainState, step: LaunchedStep) -> StepResult:
        result = finish(self, step)
        if step.counters.step == 5:
            with torch.no_grad():
                self.objective.model.output.weight[0, 0] = math.nan
        return result

    config = make_config("checkpoint.every_steps=1", "checkpoint.keep=1", "validation.every_steps=100")
    with monkeypatch.context() as patch:
        patch.setattr(TrainState, "finish", spoil)
        with pytest.raises(TrainingError, match=r"model weights are NaN or infinite at step 5\. Try"):
            run_training(config, run)
    assert (run.checkpoints_dir / "latest").read_text() == "step_0000004\n"
    assert run_training(config, run).counters.step == 12


def test_validations_with_a_huge_loss_stay_in_the_metrics(
    make_config: MakeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mt")
    run = RunDirectory(tmp_path / "run")
    result = ValidationResult(1e30, {}, [""] * 20)
    monkeypatch.setattr("mt.training.session.validate", lambda *_, **__: result)
    for steps in (8, 12):
        run_training(make_config(f"training.max_steps={steps}", "validation.metric=loss"), run)
    validations = [point for point in read_points(run.metrics_file) if point.kind == "validation"]
    assert [point.step for point in validations] == [4, 8, 12]
    assert "perplexity 1e+299  " in run.log_file.read_text()
