"""Saving, pointing, pruning, and reading again what was saved."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from mt.checkpoint.store import CheckpointStore
from mt.errors import CheckpointError
from tests.fixture_types import IsWhole, Save


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_saved_checkpoint_is_loaded_bit_for_bit(
    store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    saved = save(4000, best=True)
    loaded = CheckpointStore(store.directory).require("latest")
    assert loaded == saved
    assert (loaded.step, loaded.best, loaded.metrics) == (4000, True, {"bleu": 40.0})
    assert loaded.environment == {"torch": "2", "threads": 2}
    assert is_whole(loaded)
    assert {path.name: path.read_bytes() for path in saved.folder.iterdir()} == {
        path.name: path.read_bytes() for path in save(4000, best=True).folder.iterdir()
    }


def test_the_folder_is_laid_out_as_documented(store: CheckpointStore, save: Save) -> None:
    folder = save(4000, best=True).folder
    assert listing(store.directory) == ["best", "latest", "step_0004000"]
    assert {(store.directory / pointer).read_text() for pointer in ("best", "latest")} == {"step_0004000\n"}
    parts = ["checkpoint.json", "model.safetensors", "training_state.json", "training_state.safetensors"]
    assert listing(folder) == parts
    assert load_file(folder / "model.safetensors")["count"].item() == 4000
    assert json.loads((folder / "training_state.json").read_text())["epoch"] == 3
    assert load_file(folder / "training_state.safetensors")["optimizer.exp_avg/weight"].shape == (3, 2)


def test_the_folder_may_be_a_link_to_a_larger_disk(
    store: CheckpointStore, save: Save, tmp_path: Path, is_whole: IsWhole
) -> None:
    (tmp_path / "disk").mkdir()
    store.directory.symlink_to(tmp_path / "disk")
    save(1, keep=1)
    assert is_whole(save(2, keep=1))
    assert is_whole(save(2, keep=1))
    assert store.recover()[1] == {}
    assert listing(tmp_path / "disk") == ["latest", "step_0000002"]


def test_the_newest_and_the_best_are_kept_and_pointed_at(store: CheckpointStore, save: Save) -> None:
    for step in range(1, 8):
        save(step, best=step in (1, 3), keep=2)
    assert store.names() == ["step_0000003", "step_0000006", "step_0000007"]
    assert [store.require(name).step for name in ("latest", "best", "step_0000006")] == [7, 3, 6]
    save(8, best=True, keep=1)
    assert store.names() == ["step_0000008"]


@pytest.mark.parametrize("pointer", [None, b"", b"\xff\x00", b"step_0000009\n", b"../elsewhere/step_0000001"])
def test_the_best_is_kept_even_if_its_pointer_is_broken(
    store: CheckpointStore, save: Save, pointer: bytes | None
) -> None:
    save(1, best=True)
    path = store.directory / "best"
    path.unlink() if pointer is None else path.write_bytes(pointer)
    with pytest.raises(CheckpointError, match=r"no checkpoint (marked best|'step_0000009')"):
        store.require("best")
    save(2, keep=1)
    assert store.require("best").step == 1


def test_before_any_validation_best_means_the_latest_with_a_warning(
    store: CheckpointStore, save: Save, caplog: pytest.LogCaptureFixture
) -> None:
    save(1)
    save(2)
    assert store.require("best").step == 2
    assert "no validation has marked a best checkpoint yet: using the latest, step_0000002" in caplog.text


def test_a_step_that_is_saved_again_replaces_the_old_one(
    store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    save(3)
    (save(4).folder / "model.safetensors").write_bytes(b"damaged")
    assert is_whole(save(4))
    (save(4).folder / "model.safetensors").write_bytes(b"damaged")
    # Later, damaged ones stay when training goes back.
    assert is_whole(save(2, keep=1))
    assert store.names() == ["step_0000002", "step_0000003", "step_0000004"]


def test_without_checkpoints_the_error_says_to_train(store: CheckpointStore) -> None:
    assert store.recover() == (None, {})
    assert not store.directory.exists()
    for name in ("best", "latest", "step_0000001"):
        with pytest.raises(CheckpointError, match="train this run until it has saved one"):
            store.require(name)


def test_a_missing_one_is_reported_with_the_sound_ones(store: CheckpointStore, save: Save) -> None:
    save(1)
    save(2)
    (save(3).folder / "training_state.json").unlink()
    sound = r"Sound checkpoints: step_0000001, step_0000002\.$"
    with pytest.raises(CheckpointError, match=f"no checkpoint 'step_0000009'.* {sound}"):
        store.require("step_0000009")
    (store.directory / "latest").unlink()
    with pytest.raises(CheckpointError, match=f"no checkpoint marked latest.* {sound}"):
        store.require("latest")


def test_files_of_others_are_left_alone(store: CheckpointStore, save: Save) -> None:
    save(1)
    files = ["notes.txt", ".hidden", ".partial-7", "step_1", "step_0000001.bak"]
    for name in files:
        (store.directory / name).write_text("mine")
    store.recover()
    save(2, keep=1)
    assert listing(store.directory) == sorted([*files, "latest", "step_0000002"])


def test_a_checkpoint_that_training_removes_while_it_is_read(store: CheckpointStore, save: Save) -> None:
    old = save(1)
    save(2, keep=1)
    with pytest.raises(
        CheckpointError, match=r"step_0000001 .* is missing or.*Sound checkpoints: step_0000002"
    ):
        store.load_model(old)
