"""Readers beside a training that removes checkpoints, and checkpoints that no reader takes."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import SavedTraining
from mt.errors import CheckpointError

from .conftest import model_of, same
from .test_store_damage import rewrite_record

Save = Callable[..., Checkpoint]
MODEL = "model.safetensors"


@pytest.fixture
def at_open(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], list[int]]:
    """Has something happen just before the next open of a file or folder of this name, once."""

    def wait(name: str, happens: Callable[[], object]) -> list[int]:
        really = os.open
        opened: list[int] = []

        def open_(path: str | Path, *arguments: int, **keywords: int | None) -> int:
            if Path(path).name == name and not opened:
                opened.append(1)
                happens()
            return really(path, *arguments, **keywords)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "open", open_)
        return opened

    return wait


@pytest.mark.parametrize("name", ["step_0000001", MODEL, "checkpoint.json"])
@pytest.mark.parametrize("asked", ["best", "latest"])
def test_a_checkpoint_pruned_while_it_is_opened_is_looked_for_again(
    store: CheckpointStore, save: Save, at_open: Callable[..., list[int]], name: str, asked: str
) -> None:
    save(1, best=True)
    writer = CheckpointStore(store.directory)
    opened = at_open(name, lambda: save_elsewhere(writer, save))
    with store.hold(asked) as held:
        found, model = held.checkpoint, held.load_model()
    assert opened
    # One that was open already when it was removed is as good.
    assert found.step in (1, 2)
    assert same({key: model[key] for key in model_of(found.step)}, model_of(found.step))
    assert store.names() == ["step_0000002"]


def save_elsewhere(store: CheckpointStore, save: Save) -> None:
    save(2, best=True, keep=1)


def test_the_record_alone_is_looked_for_again_as_well(
    store: CheckpointStore, save: Save, at_open: Callable[..., list[int]]
) -> None:
    save(1)
    opened = at_open("checkpoint.json", lambda: save(2, keep=1))
    assert store.require("latest").step in (1, 2)
    assert opened


def test_what_is_held_is_read_to_its_end_though_it_is_gone(store: CheckpointStore, save: Save) -> None:
    save(1)
    with store.hold("latest") as held:
        save(2, keep=1)
        assert store.names() == ["step_0000002"]
        assert held.model_shapes()["embedding.weight"] == (11, 4)
        assert held.load_model().keys() == model_of(1).keys()


def test_a_step_that_is_saved_again_does_not_mix_with_the_old_one(
    store: CheckpointStore, save: Save, at_open: Callable[..., list[int]]
) -> None:
    save(1)

    def save_again() -> None:
        other = {"embedding.weight": torch.zeros(2)}
        store.save(
            1, other, SavedTraining({}, {}), metrics={}, environment={}, tokenizers={}, best=False, keep=1
        )

    opened = at_open("checkpoint.json", save_again)
    with store.hold("latest") as held:
        model = held.load_model()
    assert opened
    assert model.keys() in (model_of(1).keys(), {"embedding.weight"})


def test_one_that_goes_again_and_again_is_given_up_with_a_sentence(
    store: CheckpointStore, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(1)
    save(2)
    shutil.rmtree(store.directory / "step_0000002")
    monkeypatch.setattr("mt.checkpoint.store._SECONDS_BETWEEN_LOOKS", 0)
    with pytest.raises(
        CheckpointError, match=r"has no checkpoint 'step_0000002'\. Sound checkpoints: step_0000001"
    ):
        store.require("latest")


def test_damage_of_one_that_stays_is_damage(store: CheckpointStore, save: Save) -> None:
    (save(1).folder / MODEL).unlink()
    with pytest.raises(CheckpointError, match=r"step_0000001 is damaged: model\.safetensors is missing"):
        store.hold("latest").__enter__()


def test_before_any_validation_the_latest_is_taken_for_the_best_and_that_is_reported(
    store: CheckpointStore, save: Save, caplog: pytest.LogCaptureFixture
) -> None:
    save(1)
    save(2)
    assert store.require("best").step == 2
    (said,) = caplog.messages
    assert said.startswith("no validation has marked a best checkpoint yet: using the latest")
    assert "step_0000002" in said


@pytest.mark.parametrize("pointer", [None, "nonsense\n"])
def test_where_a_best_one_was_marked_no_other_is_taken(
    store: CheckpointStore, save: Save, pointer: str | None
) -> None:
    save(1, best=True)
    save(2)
    file = store.directory / "best"
    file.unlink() if pointer is None else file.write_text(pointer)
    with pytest.raises(CheckpointError, match="has no checkpoint marked best"):
        store.require("best")


def put_weights(checkpoint: Checkpoint, content: bytes) -> None:
    """Other weights, and a record whose checksums fit them."""
    (checkpoint.folder / MODEL).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    rewrite_record(checkpoint.folder, checksums={**checkpoint.checksums, MODEL: digest})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_finite_are_refused_by_name(
    store: CheckpointStore, save: Save, value: float, dtype: torch.dtype
) -> None:
    model = {"a": torch.ones(3), "b": torch.ones(2, 3, dtype=dtype), "count": torch.tensor(3)}
    model["b"][1, 1] = value
    save(1)
    put_weights(save(2), safetensors.torch.save(model, {"other_names": "{}"}))
    message = r"step_0000002 is damaged: the weight b in model.*Sound checkpoints: step_0000001\.$"
    with pytest.raises(CheckpointError, match=message):
        store.load_model(store.require("latest"))


def test_a_model_that_cannot_be_loaded_is_not_among_the_sound_ones(
    store: CheckpointStore, save: Save
) -> None:
    save(1)
    put_weights(save(2), b"no safetensors")
    with pytest.raises(CheckpointError, match=r"Sound checkpoints: step_0000001\.$"):
        store.require("step_0000009")
