"""Numbers that go wrong: what reaches the parameters, what is counted, and which jumps are reported."""

import math
from collections.abc import Sequence

import pytest
import torch

from mt.config.training import TrainingConfig
from mt.data.batches.batch import Batch
from mt.device import Precision
from mt.training.counters import Counters
from mt.training.loss import Objective
from mt.training.progress import SPIKE
from mt.training.step import StepResult
from mt.training.train_state import TrainState
from tests.fixture_types import MakeBatches, MakeObjective
from tests.training.steps import Spoilt, take_step


def step(objective: Objective, batches: list[Batch], scale: float | None = None) -> StepResult:
    precision = Precision("float32", torch.device("cpu"))
    if scale is not None:  # The loss scaling of fp16, which a CPU can do as well.
        precision.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    optimizer = torch.optim.SGD(objective.parameters())
    return take_step(TrainState(objective, [optimizer], precision, lambda _: 0.1, TrainingConfig()), batches)


@pytest.mark.parametrize("scale", [None, 1024.0])
@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_skipped_though_its_gradient_is_finite(
    loss: float, scale: float | None, make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective = Spoilt(make_objective().model)
    objective.added = loss
    before = [p.detach().clone() for p in objective.parameters()]
    result = step(objective, make_batches([5]), scale)
    assert math.isfinite(result.gradient_norm)
    assert not math.isfinite(result.loss)
    assert (result.updated, result.scale_too_large) == (False, False)
    assert all(map(torch.equal, before, objective.parameters()))


@pytest.mark.parametrize(
    ("scale", "spoil", "is_scale"),
    [
        (65536.0, {"gradient_factor": math.inf}, True),
        (2.0, {"gradient_factor": math.inf}, True),
        # At a scale of 1 the gradient is what it is.
        (1.0, {"gradient_factor": math.inf}, False),
        (65536.0, {"added": math.nan}, False),
        (None, {"gradient_factor": math.inf}, False),
    ],
)
def test_the_scale_of_fp16_is_blamed_only_for_what_it_does(
    scale: float | None,
    spoil: dict[str, float],
    is_scale: bool,
    make_objective: MakeObjective,
    make_batches: MakeBatches,
) -> None:
    objective = Spoilt(make_objective().model)
    for name, value in spoil.items():
        setattr(objective, name, value)
    result = step(objective, make_batches([5]), scale)
    assert (result.updated, result.scale_too_large) == (False, is_scale)


def jumps(losses: Sequence[float], counters: Counters) -> dict[int, float]:
    """How far above the average the loss is at each step, where that is a jump."""
    heights = {}
    for loss in losses:
        counters.record_step(10)
        counters.record_outcome(loss, 10, updated=True)
        point = counters.next_point()
        assert point is not None
        heights[counters.step] = point.above_average
    return {step: height for step, height in heights.items() if height > SPIKE}


def test_a_jump_of_the_loss_is_recognised() -> None:
    falling = [9.0 * 0.9**n for n in range(20)]
    noisy = [2.0 + 0.4 * (-1) ** n for n in range(20)]
    # The average is about 2.
    assert jumps([*falling, *noisy, 5.0, *noisy], Counters()) == {41: pytest.approx(3.0, abs=0.2)}
