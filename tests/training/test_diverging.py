"""A run whose numbers go to infinity ends with a sentence, on stderr and in its log, and loses nothing."""

import math

import pytest
import torch

from mt.errors import RunError
from mt.reports.facts import read_sessions
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from mt.training.step import LaunchedStep, StepResult
from mt.training.train_state import TrainState
from tests.fixture_types import MakeConfig

STEEP = "schedule.kind=constant", "schedule.warmup_steps=0", "training.clip_norm=null"


def test_a_validation_that_cannot_search_says_that_training_has_diverged(
    make_config: MakeConfig, run: RunDirectory
) -> None:
    config = make_config(*STEEP, "schedule.learning_rate=1e30", "validation.every_steps=1")
    with pytest.raises(RunError, match=r"logits are NaN .* at step \d\. Try a lower schedule") as raised:
        run_training(config, run)
    assert all(flag in str(raised.value) for flag in ("--run PATH", "--restart"))
    [session] = read_sessions(run)
    assert session.outcome == f"Failed: {raised.value}"


def test_weights_that_are_not_finite_are_never_saved(
    make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        with pytest.raises(RunError, match=r"model weights are NaN or infinite at step 5\. Try"):
            run_training(config, run)
    assert (run.checkpoints_dir / "latest").read_text() == "step_0000004\n"
    assert run_training(config, run).counters.step == 12
