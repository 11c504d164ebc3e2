"""One optimizer step against a step written out with torch's own loss, clipping rule and optimizer."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mt.data.batches.batch import Batch
from mt.device import Precision
from mt.special_tokens import PAD_ID
from mt.training.loss import Objective
from mt.training.train_state import new_train_state
from mt.transformer.build import build_transformer
from tests.fixture_types import MakeBatches, MakeConfig, MakeObjective
from tests.training.steps import Spoilt, new_state, parameters, sgd, take_step


def adam(objective: Objective) -> torch.optim.Adam:
    return torch.optim.Adam(objective.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)


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


@pytest.mark.parametrize("scale", [None, 4096.0], ids=["float32", "scaled as in fp16"])
@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_three_steps_equal_those_written_out(
    clip_norm: float | None, scale: float | None, make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    """A scaled gradient is unscaled before it is clipped."""
    # No biases: that of the keys has no gradient but rounding errors, which Adam blows up to full steps.
    ours, theirs = make_objective(bias=False), make_objective(bias=False)
    their_optimizer = adam(theirs)
    rates = {1: 0.01, 2: 0.003, 3: 0.02}
    state = new_state(
        ours,
        adam(ours),
        scale=scale,
        learning_rate=rates.__getitem__,
        label_smoothing=0.1,
        clip_norm=clip_norm,
    )
    for batch, rate in zip(make_batches([3, 4, 4]), rates.values(), strict=True):
        result = take_step(state, [batch])
        loss, gradient = gradient_by_hand(theirs, [batch])
        norm = norm_by_hand(gradient)
        shortened = 1.0 if clip_norm is None else min(1.0, clip_norm / norm)
        for parameter, part in zip(theirs.parameters(), gradient, strict=True):
            parameter.grad = part * shortened
        for group in their_optimizer.param_groups:
            group["lr"] = rate
        their_optimizer.step()
        assert result.loss == pytest.approx(loss, rel=1e-5)
        assert result.gradient_norm == pytest.approx(norm, rel=1e-4)
        assert (result.updated, result.learning_rate) == (True, rate)
        for our_parameter, their_parameter in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(our_parameter, their_parameter, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("sizes", [[11], [1, 10], [4, 4, 3], [1] * 11])
def test_micro_batches_have_the_gradient_of_the_one_batch_that_they_make_up(
    sizes: list[int], make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    # With a bias of the output, too.
    objective, whole = make_objective(output_bias=True), make_batches([11])
    loss, gradient = gradient_by_hand(objective, whole)
    before = parameters(objective)
    result = take_step(new_state(objective, sgd(objective), label_smoothing=0.1), make_batches(sizes))
    for old, new, expected in zip(before, parameters(objective), gradient, strict=True):
        torch.testing.assert_close(old - new, expected, atol=1e-6, rtol=1e-4)
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert result.gradient_norm == pytest.approx(norm_by_hand(gradient), rel=1e-5)
    assert result.batches.num_target_tokens == whole[0].num_target_tokens


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
def test_a_step_that_is_not_finite_changes_nothing_and_the_scale_of_fp16_is_rarely_blamed(
    scale: float | None,
    spoil: dict[str, float],
    is_scale: bool,
    make_objective: MakeObjective,
    make_batches: MakeBatches,
) -> None:
    objective = Spoilt(make_objective().model)
    for name, value in spoil.items():
        setattr(objective, name, value)
    optimizer, before = adam(objective), parameters(objective)
    state = new_state(objective, optimizer, scale=scale)
    result = take_step(state, make_batches([5]))
    assert (result.updated, result.scale_too_large) == (False, is_scale)
    assert all(map(torch.equal, parameters(objective), before))
    assert not optimizer.state_dict()["state"]
    if scale is not None:
        # A loss that is not finite has a finite gradient here.
        assert state.precision.scaler.get_scale() == (scale / 2 if "gradient_factor" in spoil else scale)
