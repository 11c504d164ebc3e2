"""Optimizer and objective as the config has them, and what a checkpoint holds of them, put back verified."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mt.checkpoint.record import DamagedError
from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import (
    SavedTraining,
    read_training_state,
    tensors_bytes,
    values_bytes,
)
from mt.config.config import Config
from mt.config.load import load_config
from mt.inference.loaded_model import load_model
from mt.run_directory import RunDirectory
from mt.training.precision import Precision
from mt.training.saved_values import read_values
from mt.training.state import TrainingState
from mt.training.train_state import Trainee, new_trainee
from mt.transformer.build import build_transformer

FORMAT_1 = Path(__file__).parent.parent / "golden" / "format_1_interrupted" / "run"
MakeConfig = Callable[..., Config]


@pytest.fixture
def make_trainee(make_config: MakeConfig) -> Callable[..., Trainee]:
    """A tiny model, the same every time; ``steps`` updates with gradients that are a function of the step."""

    def make(*overrides: str, steps: int = 0, fp16: bool = False) -> Trainee:
        config = make_config(*overrides)
        torch.manual_seed(2)
        model = build_transformer(config.model, src_vocab_size=9, tgt_vocab_size=9, max_length=8)
        precision = Precision("float32", torch.device("cpu"))
        if fp16:  # Which a CPU does not compute in.
            precision.scaler = torch.amp.GradScaler("cpu", init_scale=512.0, growth_interval=2)
            precision.scaler.scale(torch.ones(()))
        trainee = new_trainee(model, config, precision, TrainingState())
        for _ in range(steps):
            take_step(trainee)
        return trainee

    return make


def take_step(trainee: Trainee) -> None:
    trainee.state.step += 1
    generator = torch.Generator().manual_seed(trainee.state.step)
    for group in trainee.optimizer.param_groups:
        group["lr"] = 0.01
    for parameter in trainee.objective.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    trainee.precision.scaler.step(trainee.optimizer)
    trainee.precision.scaler.update()


def through_files(saved: SavedTraining, folder: Path) -> SavedTraining:
    tensors, values = folder / "tensors", folder / "values"
    tensors.write_bytes(tensors_bytes(saved))
    values.write_bytes(values_bytes(saved))
    return read_training_state(tensors.read_bytes(), values.read_bytes())


def judged(trainee: Trainee) -> dict[str, Tensor]:
    with trainee.judged_weights():
        return {name: weight.clone() for name, weight in trainee.objective.model.weights().items()}


@pytest.mark.parametrize("tied", [True, False])
def test_weight_decay_takes_off_a_share_of_matrices_beside_adams_step(
    tied: bool, make_trainee: Callable[..., Trainee]
) -> None:
    """Loshchilov and Hutter 2019, algorithm 2: the decay is no part of the gradient."""
    trainee = make_trainee("training.weight_decay=0.1", f"model.tie_output={str(tied).lower()}")
    model = trainee.objective.model
    before = {name: weight.clone() for name, weight in model.weights().items()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for group in trainee.optimizer.param_groups:
        group["lr"] = 0.01
    trainee.optimizer.step()
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
    parameters = [p for group in trainee.optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, parameters)) == sorted(map(id, model.parameters()))


def test_the_weights_of_the_losses_reach_the_objective(make_trainee: Callable[..., Trainee]) -> None:
    objective = make_trainee("training.r_drop=5", "training.guided_alignment=0.3").objective
    assert (objective.r_drop, objective.guided_alignment) == (5.0, 0.3)


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("fp16", [False, True])
@pytest.mark.parametrize("overrides", [(), ("training.ema_decay=0.9",)], ids=["plain", "average"])
def test_what_is_restored_goes_on_as_what_was_saved(
    overrides: tuple[str, ...],
    fp16: bool,
    steps: int,
    make_trainee: Callable[..., Trainee],
    tmp_path: Path,
) -> None:
    one = make_trainee("training.weight_decay=0.1", *overrides, steps=steps, fp16=fp16)
    saved, weights = through_files(one.training_state(), tmp_path), judged(one)
    other = make_trainee("training.weight_decay=0.1", *overrides, fp16=fp16)
    for parameter in other.objective.parameters():
        parameter.data.zero_()
    values = read_values(saved, steps)
    other.restore(weights, saved, values)
    other.state = values.state
    for each in (one, other):
        take_step(each)
        take_step(each)
    assert one.state == other.state
    assert one.precision.scaler.state_dict() == other.precision.scaler.state_dict()
    for name, weight in judged(one).items():
        assert torch.equal(weight, judged(other)[name])
    left, right = one.training_state(), other.training_state()
    assert left.values == right.values
    assert all(torch.equal(left.tensors[name], right.tensors[name]) for name in left.tensors)


ALTERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "too small": lambda tensor: tensor.reshape(-1)[:1].clone(),
    "too large": lambda tensor: torch.cat([tensor, tensor]),
    "float64": Tensor.double,
    "NaN": lambda tensor: tensor * torch.nan,
}


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
@pytest.mark.parametrize("kind", ["optimizer.exp_avg/", "optimizer.exp_avg_sq/", "weights/"])
def test_a_tensor_that_does_not_fit_its_parameter_is_refused_and_nothing_is_changed(
    kind: str, alter: Callable[[Tensor], Tensor], make_trainee: Callable[..., Trainee]
) -> None:
    # The fused kernel of Adam compares no sizes: it would write beyond the end of a smaller one.
    saved = make_trainee("training.ema_decay=0.9", steps=2).training_state()
    name = f"{kind}decoder.norm.weight"
    altered = SavedTraining(saved.values, {**saved.tensors, name: alter(saved.tensors[name])})
    trainee = make_trainee("training.ema_decay=0.9")
    before = {key: weight.clone() for key, weight in trainee.objective.model.weights().items()}
    with pytest.raises(DamagedError, match=name):
        trainee.restore(judged(trainee), altered, read_values(altered, 2))
    assert all(torch.equal(w, before[key]) for key, w in trainee.objective.model.weights().items())
    assert not trainee.optimizer.state


def without(saved: SavedTraining, beginning: str) -> SavedTraining:
    kept = {name: tensor for name, tensor in saved.tensors.items() if not name.startswith(beginning)}
    return SavedTraining(saved.values, kept)


def test_tensors_and_values_that_are_missing_or_too_many_are_refused(
    make_trainee: Callable[..., Trainee],
) -> None:
    plain, average = make_trainee(steps=2), make_trainee("training.ema_decay=0.9", steps=2)
    scaled = make_trainee(steps=2, fp16=True)
    state = plain.training_state()
    norm = "optimizer.exp_avg/decoder.norm.bias"
    cases: list[tuple[Trainee, SavedTraining, str]] = [
        (plain, without(state, norm), f"lacks {norm}"),
        (plain, without(state, "optimizer"), "lacks optimizer.exp_avg/"),
        (
            plain,
            SavedTraining(state.values, {**state.tensors, "more": torch.ones(1)}),
            "belong to no parameter",
        ),
        (plain, average.training_state(), "has a moving average"),
        (average, state, "lacks a moving average"),
        (plain, scaled.training_state(), "has the scale of fp16"),
        (scaled, state, "lacks the scale of fp16"),
    ]
    for trainee, saved, message in cases:
        with pytest.raises(DamagedError, match=message):
            trainee.restore(judged(trainee), saved, read_values(saved, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": 3}, "not that of step 2"),
        ({"num_target_tokens": 10**15}, "state.num_target_tokens: .*less than or equal to"),
        ({"batch": -5}, "state.batch"),
        ({"logged_loss": float("nan")}, "state.logged_loss"),
        ({"seconds": "1"}, "state.seconds"),
        ({"epoch": True}, "state.epoch"),
        ({"owes_validation": 1}, "state.owes_validation"),
        ({"best_value": -5.0}, "state.best_value"),
    ],
)
def test_counters_that_training_never_comes_to_are_refused(
    changes: dict[str, Any], message: str, make_trainee: Callable[..., Trainee]
) -> None:
    saved = make_trainee(steps=2).training_state()
    altered = SavedTraining({**saved.values, "state": {**saved.values["state"], **changes}}, saved.tensors)
    with pytest.raises(DamagedError, match=message):
        read_values(altered, 2)


def test_moments_of_format_1_are_put_to_the_parameters_that_they_are_of() -> None:
    run = RunDirectory(FORMAT_1)
    config, model = load_config(run.config_file), load_model(run, "latest").model
    trainee = new_trainee(model, config, Precision("float32", torch.device("cpu")), TrainingState())
    store = CheckpointStore(run.checkpoints_dir)
    checkpoint = store.require("latest")
    saved = store.load_training_state(checkpoint)
    trainee.restore(store.load_model(checkpoint), saved, read_values(saved, checkpoint.step))
    theirs = torch.load(checkpoint.folder / "training_state.pt", weights_only=True)
    # In format 1 there was one group, in the order of the parameters.
    for number, (name, parameter) in enumerate(model.named_parameters()):
        ours = trainee.optimizer.state[parameter]
        assert all(
            torch.equal(ours[kind], tensor) for kind, tensor in theirs["optimizer"]["state"][number].items()
        )
        assert torch.equal(parameter, theirs["average"]["weights"][name])
