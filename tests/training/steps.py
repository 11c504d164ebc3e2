"""Single steps of training, what goes wrong when told to, and comparisons bit for bit."""

import math
import os
import signal
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.config.training import TrainingConfig
from mt.data.batches.batch import Batch
from mt.data.batches.stream import StepBatches
from mt.data.corpus import NamedSet
from mt.device import Precision
from mt.evaluation.record import Score
from mt.run_directory import RunDirectory, as_run
from mt.training.loss import Objective
from mt.training.moving_average import MovingAverage
from mt.training.optimizers import make_optimizers
from mt.training.run import Outcome, run_training
from mt.training.step import StepResult
from mt.training.train_state import TrainState
from mt.training.validation import ValidationResult
from tests.fixture_types import MakeConfig, TrainUntil


class Spoilt(Objective):
    """Adds a constant to the loss, which leaves the gradient alone, and multiplies the gradient alone."""

    added = 0.0
    gradient_factor = 1.0

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        loss = super().forward(batch, smoothing) + self.added
        loss.register_hook(lambda gradient: gradient * self.gradient_factor)  # type: ignore[no-untyped-call]
        return loss


def spoil(monkeypatch: pytest.MonkeyPatch, calls: Container[int]) -> list[Batch]:
    """Makes these forward passes of training, counted from 1, give NaN; the batches of all of them."""
    forward = Objective.forward
    seen: list[Batch] = []

    def sometimes_nan(self: Objective, batch: Batch, smoothing: float) -> Tensor:
        loss = forward(self, batch, smoothing)
        if not self.training:
            return loss
        seen.append(batch)
        return loss * math.nan if len(seen) in calls else loss

    monkeypatch.setattr(Objective, "forward", sometimes_nan)
    return seen


def raising(error: type[BaseException]) -> Callable[..., Any]:
    """Stands for a function that is interrupted, or that a killed process does not finish."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def kill_at_call(
    patch: pytest.MonkeyPatch, owner: Any, name: str, call: int, number: int = signal.SIGTERM, times: int = 1
) -> list[int]:
    """Let the ``call``-th call of a function send this process a signal first; returns the calls."""
    function = getattr(owner, name)
    calls: list[int] = []

    def wrapped(*arguments: Any, **named: Any) -> Any:
        calls.append(len(calls) + 1)
        if len(calls) == call:
            for _ in range(times):
                os.kill(os.getpid(), number)
        return function(*arguments, **named)

    patch.setattr(owner, name, wrapped)
    return calls


def scripted(values: Sequence[float]) -> Callable[..., ValidationResult]:
    """Stands for `validate`: scores and the loss are the next of these values, and the last for ever."""
    left = iter(values)

    def validate(*args: object, sets: Mapping[str, NamedSet], **kwargs: object) -> ValidationResult:
        value = next(left, values[-1])
        scores = {name: Score(name, value, "nrefs:1") for name in ("bleu", "chrf")}
        return ValidationResult(value, {"own": scores}, list(sets["own"].pairs["src"]))

    return validate


def new_state(
    objective: Objective,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    scale: float | None = None,
    is_late: bool = False,
    learning_rate: Callable[[int], float] = lambda step: 1.0,
    **options: Any,
) -> TrainState:
    """The state of training on a CPU, with these options of ``training``, by default without clipping.

    The optimizers are those of the options if none is given. With ``scale``, the loss is scaled as in fp16,
    which a CPU can do as well; one that is late skips steps as CUDA does.
    """
    precision = Precision("float32", torch.device("cpu"))
    precision.skips_on_device = is_late
    if scale is not None:
        precision.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
    training = TrainingConfig(**{"clip_norm": None, **options})
    optimizers = [optimizer] if optimizer else make_optimizers(objective.model, training, precision)
    average = None if training.ema_decay is None else MovingAverage(objective.model, training.ema_decay)
    return TrainState(objective, optimizers, precision, learning_rate, training, average)


class Training:
    """Trains one run with the tiny config and what follows ``--set``, in as many sessions as it is called."""

    def __init__(self, make_config: MakeConfig, train_until: TrainUntil, run: RunDirectory) -> None:
        self._make_config, self._train_until, self._run = make_config, train_until, run

    def __call__(
        self, *overrides: str, step: int | None = None, into: str | Path | RunDirectory = "", **options: Any
    ) -> Outcome:
        """Train to the end, or until SIGTERM after ``step``; options are those of `run_training`."""
        config, run = self._make_config(*overrides), as_run(into or self._run)
        if step is None:
            return run_training(config, run, **options)
        outcome = self._train_until(config, run.path, step=step)
        assert outcome is not None
        return outcome

    def crash(self, *overrides: str, step: int, into: str | Path | RunDirectory = "") -> None:
        """Let the process be killed after ``step``."""
        path = as_run(into or self._run).path
        assert self._train_until(self._make_config(*overrides), path, step=step, crash=True) is None


def take_step(state: TrainState, micro_batches: Sequence[Batch]) -> StepResult:
    """One step on these, whose result is read at once."""
    return state.finish(state.launch(StepBatches.of(*micro_batches)))


def sgd(objective: Objective) -> torch.optim.Optimizer:
    """At a rate of 1, what the parameters lose is the gradient."""
    return torch.optim.SGD(objective.parameters())


def parameters(objective: Objective) -> list[Tensor]:
    """A copy of them."""
    return [parameter.detach().clone() for parameter in objective.parameters()]


assert_equal = partial(torch.testing.assert_close, rtol=0.0, atol=0.0)
"""Compares tensors, also in containers, bit for bit."""
