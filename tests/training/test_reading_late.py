"""Steps that are launched before the last one was read: what is skipped and written is the same."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mt.training.run
from mt.run_directory import RunDirectory
from mt.training.train_state import TrainState, new_train_state
from tests.fixture_types import AssertSame, MakeBatches, MakeObjective
from tests.training.steps import Spoilt, Training, new_state, spoil, take_step


def tensors(state: TrainState) -> dict[str, Tensor]:
    weights = {name: each.detach().clone() for name, each in state.objective.model.named_parameters()}
    with state.evaluation_weights():
        weights |= {
            f"average of {name}": each.detach().clone()
            for name, each in state.objective.model.named_parameters()
        }
    return weights | {name: each.clone() for name, each in state.save().tensors.items()}


BAD = [{name: value} for name in ("added", "gradient_factor") for value in (math.nan, math.inf, -math.inf)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clip_norm": 1.0},
        {"scale": 4.0},
        {"ema_decay": 0.8},
        {"muon": True},
        {"clip_norm": 1.0, "scale": 4.0, "ema_decay": 0.8, "muon": True},
    ],
    ids=str,
)
def test_a_device_leaves_out_just_what_the_host_would(
    options: dict[str, Any], make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    batches = make_batches([5, 6])
    spoilings: list[dict[str, float]] = [BAD[0], {}, *BAD, {}, {}]
    ends = []
    for is_late in (False, True):
        objective = Spoilt(make_objective().model)
        state = new_state(
            objective, is_late=is_late, weight_decay=0.1, learning_rate=lambda step: 0.01 / step, **options
        )
        results, saved = [], []
        for spoiling in spoilings:
            objective.added, objective.gradient_factor = 0.0, 1.0
            for name, value in spoiling.items():
                setattr(objective, name, value)
            before = tensors(state)
            results.append(take_step(state, batches))
            saved.append(state.save().values)
            assert results[-1].updated == (not spoiling)
            after = tensors(state)
            is_same = before.keys() == after.keys() and all(
                torch.equal(before[name], each) for name, each in after.items()
            )
            assert is_same == bool(spoiling)
        ends.append((str(results), saved, tensors(state)))
    (results_then, saved_then, tensors_then), (results_late, saved_late, tensors_late) = ends
    assert results_late == results_then
    assert saved_late == saved_then
    assert tensors_late.keys() == tensors_then.keys()
    for name, each in tensors_then.items():
        # The device divides in float32, with which the average takes a share of each weight.
        tolerance = 1e-6 if name.startswith("average of") else 0.0
        torch.testing.assert_close(tensors_late[name], each, rtol=tolerance, atol=tolerance)


def test_a_run_writes_the_same(
    train: Training,
    tmp_path: Path,
    assert_same: AssertSame,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def late(*arguments: Any) -> TrainState:
        """Lets runs on a CPU read as late as those on CUDA."""
        state = new_train_state(*arguments)
        state.precision.skips_on_device = True
        return state

    options = "training.num_micro_batches=1", "validation.every_steps=7", "training.log_every_steps=4"
    runs, skipped = [RunDirectory(tmp_path / name) for name in ("at_once", "late")], []
    for run in runs:
        with monkeypatch.context() as patch:
            spoil(patch, [2, 6, 7, 9, 11])
            caplog.clear()
            train(*options, into=run)
        skipped.append([message for message in caplog.messages if " skipped: " in message])
        monkeypatch.setattr(mt.training.run, "new_train_state", late)
    assert [message.split()[1] for message in skipped[0]] == ["2", "6", "7", "9", "11"]
    assert skipped[0] == skipped[1]
    assert_same(*runs)
