"""The figures of a step against the same computed by hand, and that looking changes nothing."""

from collections.abc import Callable, Sequence

import pytest
import torch

from mt.data.batches.batch import Batch, collate
from mt.device import Precision
from mt.training.health import padding_share
from mt.training.loss import Objective
from mt.training.train_state import TrainState

MakeObjective = Callable[..., Objective]
MakeBatches = Callable[[Sequence[int]], list[Batch]]


def train_state(objective: Objective, *, rate: float = 0.01) -> TrainState:
    return TrainState(
        objective,
        torch.optim.AdamW(objective.parameters(), lr=rate, weight_decay=0.1, fused=True),
        Precision("float32", torch.device("cpu")),
        lambda step: rate,
        clip_norm=0.5,
    )


def weights(objective: Objective) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone() for name, each in objective.model.named_parameters()}


def norm_of(tensors: Sequence[torch.Tensor]) -> float:
    return float(torch.cat([tensor.flatten().double() for tensor in tensors]).norm())


def test_the_norms_are_those_of_each_layer_by_hand(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective, other = make_objective(num_decoder_layers=2), make_objective(num_decoder_layers=2)
    batches = make_batches([5, 6])
    before = weights(objective)
    result = train_state(objective).step(batches, observe=True)
    assert result.health is not None
    after = weights(objective)
    # The gradient before clipping, from a model of the same weights.
    num_target_tokens = sum(batch.num_target_tokens for batch in batches)
    sum(other(batch, 0.0) / num_target_tokens for batch in batches).backward()
    gradients = {name: each.grad for name, each in other.model.named_parameters() if each.grad is not None}
    layers = {
        "encoder.layers.0": "encoder.layers.0.",
        "encoder.norm": "encoder.norm.",
        "decoder.layers.0": "decoder.layers.0.",
        "decoder.layers.1": "decoder.layers.1.",
        "decoder.norm": "decoder.norm.",
        "src_embedding": "src_embedding.",
        "tgt_embedding": "tgt_embedding.",
    }
    assert result.health.gradient_norms == {
        layer: pytest.approx(norm_of([g for name, g in gradients.items() if name.startswith(prefix)]))
        for layer, prefix in layers.items()
    }
    assert result.health.weight_norms == {
        layer: pytest.approx(norm_of([w for name, w in after.items() if name.startswith(prefix)]))
        for layer, prefix in layers.items()
    }
    change = norm_of([after[name] - before[name] for name in before])
    assert result.health.update_ratio == pytest.approx(change / norm_of(list(after.values())), rel=1e-5)
    assert result.gradient_norm == pytest.approx(norm_of(list(gradients.values())))
    assert result.gradient_norm > 0.5  # So that there was something to clip.


def test_looking_changes_no_bit_of_weights_and_moments(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    ended = []
    for observe in (False, True):
        state = train_state(make_objective(dropout=0.3))
        torch.manual_seed(3)
        for _ in range(4):
            state.step(make_batches([11]), observe=observe)
        ended.append({**weights(state.objective), **state.save().tensors})
    assert all(ended[0][name].equal(ended[1][name]) for name in ended[0] | ended[1])


def test_a_skipped_step_has_not_moved_the_weights(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective = make_objective()
    state = train_state(objective)
    next(objective.parameters()).register_hook(  # type: ignore[no-untyped-call]
        lambda gradient: gradient * float("nan")
    )
    result = state.step(make_batches([11]), observe=True)
    assert not result.updated
    assert result.health is not None
    assert result.health.update_ratio == 0.0


def test_padding_is_counted_on_both_sides() -> None:
    # Sources of 3 and 2 tokens with EOS, targets of 2 and 5 with BOS: 4 of 16 positions are padding.
    batch = collate([[5, 6], [5]], [[7], [7, 8, 9, 10]])
    assert batch.src_ids.numel() + batch.tgt_ids.numel() == 16
    assert padding_share([batch]) == pytest.approx(4 / 16)
    assert padding_share([batch, collate([[5]], [[7]])]) == pytest.approx(4 / 20)
