"""One optimizer step against a step written out with torch's own loss, clipping rule and optimizer."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mt.config.training import TrainingConfig
from mt.data.batches.batch import Batch
from mt.device import Precision
from mt.special_tokens import PAD_ID
from mt.training.loss import Objective
from mt.training.step import StepResult
from mt.training.train_state import TrainState, new_train_state
from mt.transformer.build import build_transformer
from tests.fixture_types import MakeBatches, MakeConfig, MakeObjective
from tests.training.steps import Spoilt, take_step


def adam(objective: Objective) -> torch.optim.Adam:
    return torch.optim.Adam(objective.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)


def step(
    objective: Objective,
    batches: list[Batch],
    optimizer: torch.optim.Optimizer,
    precision: Precision | None = None,
    *,
    learning_rate: float = 0.01,
    clip_norm: float | None = None,
) -> StepResult:
    if precision is None:
        precision = Precision("float32", torch.device("cpu"))
    training = TrainingConfig(clip_norm=clip_norm)
    train_state = TrainState(objective, [optimizer], precision, lambda _: learning_rate, training)
    return take_step(train_state, batches)


def parameters(objective: Objective) -> list[Tensor]:
    return [p.detach().clone() for p in objective.parameters()]


def gradient_by_hand(objective: Objective, batches: list[Batch]) -> tuple[float, list[Tensor]]:
    """Loss per token of all the batches, and its gradient."""
    total = torch.zeros(())
    for batch in batches:
        logits = objective.model(batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask)
        total = total + F.cross_entropy(
            logits.flatten(0, 1),
            batch.labels.flatten(),
            label_smoothing=0.1,
            reduction="sum",
            ignore_index=PAD_ID,
        )
    loss = total / sum(int((batch.labels != PAD_ID).sum()) for batch in batches)
    return float(loss.detach()), list(torch.autograd.grad(loss, list(objective.parameters())))


def norm_by_hand(gradient: list[Tensor]) -> float:
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradient))


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_three_steps_equal_those_written_out(
    clip_norm: float | None, make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    # No biases: that of the keys has no gradient but rounding errors, which Adam blows up to full steps.
    ours, theirs = make_objective(bias=False), make_objective(bias=False)
    optimizer, their_optimizer = adam(ours), adam(theirs)
    batches = make_batches([3, 4, 4])
    for batch, rate in zip(batches, (0.01, 0.003, 0.02), strict=True):
        result = step(ours, [batch], optimizer, learning_rate=rate, clip_norm=clip_norm)
        loss, gradient = gradient_by_hand(theirs, [batch])
        norm = norm_by_hand(gradient)
        scale = 1.0 if clip_norm is None else min(1.0, clip_norm / norm)
        for parameter, part in zip(theirs.parameters(), gradient, strict=True):
            parameter.grad = part * scale
        for group in their_optimizer.param_groups:
            group["lr"] = rate
        their_optimizer.step()
        assert result.loss == pytest.approx(loss, rel=1e-5)
        assert result.gradient_norm == pytest.approx(norm, rel=1e-4)
        assert result.updated
        for our_parameter, their_parameter in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(our_parameter, their_parameter, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("sizes", [[1, 10], [4, 4, 3], [1] * 11])
def test_micro_batches_equal_the_one_batch_that_they_make_up(
    sizes: list[int], make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    whole, parts = make_objective(), make_objective()
    before = parameters(whole)
    # Plain SGD with rate 1: what the parameters lose is the gradient.
    results = [
        step(objective, batches, torch.optim.SGD(objective.parameters()), learning_rate=1.0)
        for objective, batches in ((whole, make_batches([11])), (parts, make_batches(sizes)))
    ]
    _, gradient = gradient_by_hand(make_objective(), make_batches([11]))
    for old, one, many, expected in zip(before, parameters(whole), parameters(parts), gradient, strict=True):
        torch.testing.assert_close(many, one, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(old - many, expected, atol=1e-6, rtol=1e-4)
    assert results[0].loss == pytest.approx(results[1].loss, rel=1e-6)
    assert results[0].gradient_norm == pytest.approx(results[1].gradient_norm, rel=1e-5)
    assert results[0].batches.num_target_tokens == results[1].batches.num_target_tokens


def test_a_step_with_muon_clips_the_whole_gradient_and_moves_every_matrix(
    make_config: MakeConfig, make_batches: MakeBatches
) -> None:
    """As the config sets it up: by hand up to the momentum, and by the singular values of the updates."""
    config = make_config(
        *("training.muon=true", "training.clip_norm=0.1", "training.label_smoothing=0.1"),
        *("schedule.kind=noam", "schedule.warmup_steps=4", "model.dropout=0.0"),
    )
    torch.manual_seed(1)
    model = build_transformer(config.model, src_vocab_size=17, tgt_vocab_size=17, max_length=24)
    state = new_train_state(model, config, Precision("float32", torch.device("cpu")))
    batches = make_batches([4, 7])
    loss, gradient = gradient_by_hand(state.objective, batches)
    norm, before = norm_by_hand(gradient), parameters(state.objective)
    assert norm > 0.1

    result = take_step(state, batches)
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert result.gradient_norm == pytest.approx(norm, rel=1e-4)
    # Section 5.3, equation 3.
    rate = 16**-0.5 * 4**-1.5
    assert result.learning_rate == pytest.approx(rate)
    _, muon = state.optimizers
    num_matrices = 0
    for parameter, old, own in zip(model.parameters(), before, gradient, strict=True):
        if (moments := muon.state.get(parameter)) is None:
            continue
        num_matrices += 1
        # The first moving average of a gradient that was clipped.
        expected = (1 - 0.95) * own * 0.1 / norm
        torch.testing.assert_close(moments["momentum_buffer"], expected, rtol=1e-3, atol=1e-8)
        largest = torch.linalg.matrix_norm(parameter.detach() - old, 2)
        assert 0.6 < largest / (0.2 * max(old.shape) ** 0.5 * rate) < 1.4
    # Four of each attention, and two of each feed-forward network.
    assert num_matrices == 3 * 4 + 2 * 2


def with_scaler(init_scale: float) -> Precision:
    """The loss scaling of fp16, which a CPU can do as well."""
    precision = Precision("float32", torch.device("cpu"))
    precision.scaler = torch.amp.GradScaler("cpu", init_scale=init_scale)
    return precision


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_scaled_gradient_is_unscaled_before_it_is_clipped(
    clip_norm: float | None, make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    plain, scaled = make_objective(), make_objective()
    batches = make_batches([5, 6])
    sgd = torch.optim.SGD
    expected = step(plain, batches, sgd(plain.parameters()), learning_rate=1.0, clip_norm=clip_norm)
    precision = with_scaler(4096.0)
    result = step(
        scaled, batches, sgd(scaled.parameters()), precision, learning_rate=1.0, clip_norm=clip_norm
    )
    assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-5)
    assert result.loss == pytest.approx(expected.loss, rel=1e-6)
    assert result.updated
    for ours, theirs in zip(parameters(scaled), parameters(plain), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_overflow_under_scaling_lowers_the_scale_and_changes_nothing(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective = Spoilt(make_objective().model)
    objective.gradient_factor = math.inf
    optimizer, precision = adam(objective), with_scaler(1024.0)
    before = parameters(objective)
    assert not step(objective, make_batches([11]), optimizer, precision).updated
    assert precision.scaler.get_scale() == 512.0
    assert all(map(torch.equal, parameters(objective), before))
    assert not optimizer.state_dict()["state"]


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
    precision = None if scale is None else with_scaler(scale)
    result = step(objective, make_batches([5]), adam(objective), precision)
    assert (result.updated, result.scale_too_large) == (False, is_scale)
