"""Single steps of training, a loss that goes wrong when told to, and a comparison bit for bit."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mt.data.batches.batch import Batch
from mt.data.batches.stream import StepBatches
from mt.training.loss import Objective
from mt.training.step import StepResult
from mt.training.train_state import TrainState


class Spoilt(Objective):
    """Adds a constant to the loss, which leaves the gradient alone, and multiplies the gradient alone."""

    added = 0.0
    gradient_factor = 1.0

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        loss = super().forward(batch, smoothing) + self.added
        loss.register_hook(lambda gradient: gradient * self.gradient_factor)  # type: ignore[no-untyped-call]
        return loss


def take_step(state: TrainState, micro_batches: Sequence[Batch]) -> StepResult:
    """One step on these, whose result is read at once."""
    return state.finish(state.launch(StepBatches.of(*micro_batches)))


def assert_equal(left: Any, right: Any) -> None:
    """Compare nested containers, tensors with `torch.equal`."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, list | tuple):
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            assert_equal(*pair)
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
    else:
        assert left == right
