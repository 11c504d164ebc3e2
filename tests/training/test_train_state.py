"""Optimizer and objective as the config has them, and what a checkpoint holds of them, put back verified."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from mt.checkpoint.record import DamagedError
from mt.checkpoint.training_state import SavedTraining, read_training_state, values_bytes
from mt.device import Precision
from mt.training.counters import read_values
from mt.training.optimizers import count_moments
from mt.training.train_state import TrainState, new_train_state
from mt.transformer.build import build_transformer
from tests.fixture_types import MakeConfig


@pytest.fixture
def make_state(make_config: MakeConfig) -> Callable[..., TrainState]:
    """A tiny model, the same every time; ``steps`` updates with gradients that are a function of the step."""

    def make(*overrides: str, steps: int = 0, fp16: bool = False) -> TrainState:
        config = make_config(*overrides)
        torch.manual_seed(2)
        model = build_transformer(config.model, src_vocab_size=9, tgt_vocab_size=9, max_length=8)
        precision = Precision("float32", torch.device("cpu"))
        if fp16:  # Which a CPU does not compute in.
            precision.scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=2)
            precision.scaler.scale(torch.ones(()))
        state = new_train_state(model, config, precision)
        for _ in range(steps):
            take_step(state)
        return state

    return make


def take_step(state: TrainState) -> None:
    state.counters.step += 1
    generator = torch.Generator().manual_seed(state.counters.step)
    for parameter in state.objective.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    for optimizer in state.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        state.precision.scaler.step(optimizer)
    state.precision.scaler.update()


def through_files(saved: SavedTraining, folder: Path) -> SavedTraining:
    tensors, values = folder / "tensors", folder / "values"
    tensors.write_bytes(safetensors.torch.save(saved.tensors))
    values.write_bytes(values_bytes(saved))
    return read_training_state(tensors.read_bytes(), values.read_bytes())


def evaluated(state: TrainState) -> dict[str, Tensor]:
    with state.evaluation_weights():
        return {name: weight.clone() for name, weight in state.objective.model.weights().items()}


@pytest.mark.parametrize("tied", [True, False])
def test_weight_decay_takes_off_a_share_of_matrices_beside_adams_step(
    tied: bool, make_state: Callable[..., TrainState]
) -> None:
    """Loshchilov and Hutter 2019, algorithm 2: the decay is not part of the gradient."""
    state = make_state("training.weight_decay=0.1", f"model.tie_output={str(tied).lower()}")
    model = state.objective.model
    before = {name: weight.clone() for name, weight in model.weights().items()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for group in state.optimizers[0].param_groups:
        group["lr"] = 0.01
    state.optimizers[0].step()
    exempt = set()
    for name, weight in model.weights().items():
        # The first step of Adam is the learning rate, in the direction of the gradient.
        whole = before[name] - 0.01
        if torch.allclose(weight, whole, atol=1e-7):
            exempt.add(name)
        else:
            torch.testing.assert_close(weight, before[name] * (1 - 0.01 * 0.1) - 0.01)
    odd = {name for name in exempt if not name.endswith("bias") and "norm" not in name}
    assert odd == {"src_embedding.tokens.weight", "tgt_embedding.tokens.weight"}
    assert {name for name in before if name.endswith("bias") or "norm" in name} <= exempt
    assert ("output.weight" in before) == (not tied)
    # Each parameter is updated once.
    parameters = [p for group in state.optimizers[0].param_groups for p in group["params"]]
    assert sorted(map(id, parameters)) == sorted(map(id, model.parameters()))


@pytest.mark.parametrize("tied", ["true", "false"])
def test_beside_muon_only_an_output_of_its_own_decays_by_adam(
    tied: str, make_state: Callable[..., TrainState]
) -> None:
    state = make_state("training.weight_decay=0.1", "training.muon=true", f"model.tie_output={tied}")
    adamw, muon = (optimizer.param_groups for optimizer in state.optimizers)
    assert [group["weight_decay"] for group in (*adamw, *muon)] == [0.1, 0.0, 0.1]
    output = state.objective.model.output.weight
    assert [parameter is output for parameter in adamw[0]["params"]] == ([] if tied == "true" else [True])


def test_every_option_reaches_the_part_that_it_is_for(make_state: Callable[..., TrainState]) -> None:
    losses = "training.guided_alignment=0.2", "training.r_drop=3"
    state = make_state(*losses, "training.ema_decay=0.1", "training.muon=true")
    assert (state.objective.guided_alignment, state.objective.r_drop) == (0.2, 3.0)
    before = {name: weight.clone() for name, weight in state.objective.model.weights().items()}
    take_step(state)
    for name, weight in evaluated(state).items():
        after = state.objective.model.weights()[name]
        torch.testing.assert_close(weight, 0.1 * before[name] + 0.9 * after)


@pytest.mark.parametrize("muon", ["true", "false"])
def test_the_numbers_that_optimizers_keep_are_counted(
    muon: str, make_state: Callable[..., TrainState]
) -> None:
    state = make_state(f"training.muon={muon}", steps=1)
    kept = sum(tensor.numel() for tensor in state.save().tensors.values())
    assert count_moments(state.objective.model, state.training) == kept


@pytest.mark.parametrize("fp16", [False, True])
@pytest.mark.parametrize(
    "overrides",
    [(), ("training.ema_decay=0.9",), ("training.ema_decay=0.9", "training.muon=true")],
    ids=["plain", "average", "Muon"],
)
def test_what_is_restored_continues_as_what_was_saved(
    overrides: tuple[str, ...], fp16: bool, make_state: Callable[..., TrainState], tmp_path: Path
) -> None:
    one = make_state("training.weight_decay=0.1", *overrides, steps=3, fp16=fp16)
    saved, weights = through_files(one.save(), tmp_path), evaluated(one)
    other = make_state("training.weight_decay=0.1", *overrides, fp16=fp16)
    for parameter in other.objective.parameters():
        parameter.data.zero_()
    other.restore(weights, saved, read_values(saved.values, 3))
    for each in (one, other):
        take_step(each)
        take_step(each)
    assert one.counters == other.counters
    assert one.precision.scaler.state_dict() == other.precision.scaler.state_dict()
    for name, weight in evaluated(one).items():
        assert torch.equal(weight, evaluated(other)[name])
    left, right = one.save(), other.save()
    assert left.values == right.values
    assert all(torch.equal(left.tensors[name], right.tensors[name]) for name in left.tensors)


ALTERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "too small": lambda tensor: tensor.reshape(-1)[:1].clone(),
    "too large": lambda tensor: torch.cat([tensor, tensor]),
    "float64": Tensor.double,
    "NaN": lambda tensor: tensor * torch.nan,
}


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
@pytest.mark.parametrize(
    "name",
    [
        "optimizer.exp_avg/decoder.norm.weight",
        "optimizer.momentum/decoder.layers.0.self_attention.key.weight",
        "weights/decoder.norm.weight",
    ],
)
def test_a_tensor_that_does_not_fit_its_parameter_is_refused_and_nothing_is_changed(
    name: str, alter: Callable[[Tensor], Tensor], make_state: Callable[..., TrainState]
) -> None:
    # The fused kernel of Adam compares no sizes: it would write beyond the end of a smaller one.
    options = ("training.ema_decay=0.9", "training.muon=true")
    saved = make_state(*options, steps=2).save()
    altered = SavedTraining(saved.values, {**saved.tensors, name: alter(saved.tensors[name])})
    state = make_state(*options)
    before = {key: weight.clone() for key, weight in state.objective.model.weights().items()}
    with pytest.raises(DamagedError, match=name):
        state.restore(evaluated(state), altered, read_values(altered.values, 2))
    assert all(torch.equal(w, before[key]) for key, w in state.objective.model.weights().items())
    assert not state.optimizers[0].state


@pytest.mark.parametrize(
    ("moment", "value", "is_refused"),
    [("exp_avg", math.inf, True), ("exp_avg_sq", -1e-9, True), ("exp_avg_sq", math.inf, False)],
)
def test_a_square_is_never_negative_but_may_overflow(
    moment: str, value: float, is_refused: bool, make_state: Callable[..., TrainState]
) -> None:
    saved, state = make_state(steps=2).save(), make_state()
    saved.tensors[f"optimizer.{moment}/decoder.norm.weight"][0] = value
    with pytest.raises(DamagedError, match=moment) if is_refused else nullcontext():
        state.restore(evaluated(state), saved, read_values(saved.values, 2))


def without(saved: SavedTraining, beginning: str) -> SavedTraining:
    kept = {name: tensor for name, tensor in saved.tensors.items() if not name.startswith(beginning)}
    return SavedTraining(saved.values, kept)


def test_tensors_and_values_that_are_missing_or_too_many_are_refused(
    make_state: Callable[..., TrainState],
) -> None:
    plain, average = make_state(steps=2), make_state("training.ema_decay=0.9", steps=2)
    scaled, muon = make_state(steps=2, fp16=True), make_state("training.muon=true", steps=2)
    saved_plain = plain.save()
    norm = "optimizer.exp_avg/decoder.norm.bias"
    cases: list[tuple[TrainState, SavedTraining, str]] = [
        (plain, without(saved_plain, norm), norm),
        (plain, without(saved_plain, "optimizer"), "optimizer.exp_avg/"),
        (plain, SavedTraining(saved_plain.values, {**saved_plain.tensors, "more": torch.ones(1)}), "more"),
        (plain, average.save(), "average"),
        (average, saved_plain, "average"),
        (plain, scaled.save(), "scaler"),
        (scaled, saved_plain, "scaler"),
        (plain, muon.save(), "optimizer.exp_avg/"),
        (muon, saved_plain, "optimizer.exp_avg/"),
    ]
    for state, saved, message in cases:
        with pytest.raises(DamagedError, match=f"does not fit this run: {message}"):
            state.restore(evaluated(state), saved, read_values(saved.values, 2))


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("state", {"step": 3}, "does not belong to step 2"),
        ("state", {"num_target_tokens": 10**15}, "state.num_target_tokens: .*less than or equal to"),
        ("state", {"logged_loss": float("nan")}, "state.logged_loss"),
        ("state", {"seconds": "1"}, "state.seconds"),
        ("optimizer", {"num_updates": 3}, "does not belong to step 2"),
        ("average", {"num_updates": 3}, "does not belong to step 2"),
        ("scaler", {"scale": 0.0}, "scaler.scale: .*greater than 0"),
    ],
)
def test_counters_that_training_never_comes_to_are_refused(
    part: str, changes: dict[str, Any], message: str, make_state: Callable[..., TrainState]
) -> None:
    values = dict(make_state("training.ema_decay=0.9", steps=2, fp16=True).save().values)
    assert read_values(values, 2).optimizer.num_updates == 2
    with pytest.raises(DamagedError, match=message):
        read_values(values | {part: values[part] | changes}, 2)


def test_losses_of_a_diverging_run_are_read_again(make_state: Callable[..., TrainState]) -> None:
    state = make_state(steps=2)
    state.counters.record_outcome(1e30, 10**5, updated=True)
    point = state.counters.next_point()
    assert point is not None
    assert point.loss > 1e29
    state.counters.record_outcome(1e30, 10**5, updated=True)
    state.counters.record_validation(1e30, "loss")
    assert read_values(state.save().values, 2).counters == state.counters
