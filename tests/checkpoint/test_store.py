"""Saving, pointing, pruning, and finding again what was saved."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import SavedTraining
from mt.errors import CheckpointError

Save = Callable[..., Checkpoint]
IsWhole = Callable[[Checkpoint], bool]


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back_to_the_bit(store: CheckpointStore, save: Save, is_whole: IsWhole) -> None:
    saved = save(4000, best=True)
    assert saved.name == "step_0004000"
    found = CheckpointStore(store.directory).require("latest")
    assert found == saved
    assert (found.step, found.best, found.metrics) == (4000, True, {"bleu": 40.0})
    assert found.environment == {"torch": "2", "threads": 2}
    assert is_whole(found)


def test_the_folder_is_laid_out_as_promised(store: CheckpointStore, save: Save) -> None:
    save(4000, best=True)
    assert listing(store.directory) == ["best", "latest", "step_0004000"]
    folder = store.directory / "step_0004000"
    assert listing(folder) == [
        "checkpoint.json",
        "model.safetensors",
        "training_state.json",
        "training_state.safetensors",
    ]
    assert (
        (store.directory / "best").read_text() == (store.directory / "latest").read_text() == "step_0004000\n"
    )


def test_the_folder_may_be_a_link_to_a_larger_disk(
    store: CheckpointStore, save: Save, tmp_path: Path, is_whole: IsWhole
) -> None:
    (tmp_path / "disk").mkdir()
    store.directory.symlink_to(tmp_path / "disk")
    save(1, keep=1)
    assert is_whole(save(2, keep=1))
    assert listing(tmp_path / "disk") == ["latest", "step_0000002"]


def test_the_parts_are_plain_files_for_other_programs(save: Save) -> None:
    folder = save(7).folder
    assert load_file(folder / "model.safetensors")["count"].item() == 7
    assert json.loads((folder / "training_state.json").read_text())["epoch"] == 3
    assert load_file(folder / "training_state.safetensors")["optimizer.exp_avg/weight"].shape == (3, 2)


def test_two_saves_of_the_same_content_are_the_same_bytes(save: Save) -> None:
    first = {path.name: path.read_bytes() for path in save(7).folder.iterdir()}
    second = {path.name: path.read_bytes() for path in save(7).folder.iterdir()}
    assert first == second


def test_a_training_state_that_could_not_be_loaded_again_is_refused_before_the_disk_sees_it(
    store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    save(1)
    odd = SavedTraining({"path": Path()}, {})
    with pytest.raises(TypeError, match=r"Path is not JSON"):
        store.save(2, {}, odd, metrics={}, environment={}, tokenizers={}, best=True, keep=1)
    assert listing(store.directory) == ["latest", "step_0000001"]
    assert is_whole(store.require("latest"))


def test_scores_that_are_no_numbers_do_not_stop_saving_and_are_left_out(store: CheckpointStore) -> None:
    infinite = {"loss": float("inf"), "perplexity": float("nan"), "bleu": 1.5}
    nothing = SavedTraining({}, {})
    store.save(2, {}, nothing, metrics=infinite, environment={}, tokenizers={}, best=False, keep=1)
    assert store.require("latest").metrics == {"bleu": 1.5}


def test_pointers_follow(store: CheckpointStore, save: Save) -> None:
    for step, best in ((1, True), (2, False), (3, True), (4, False)):
        save(step, best=best)
    assert store.require("latest").step == 4
    assert store.require("best").step == 3
    assert store.require("step_0000002").step == 2


def test_only_the_newest_stay_and_always_the_best(store: CheckpointStore, save: Save) -> None:
    for step in range(1, 8):
        save(step, best=step == 2, keep=2)
    assert store.names() == ["step_0000002", "step_0000006", "step_0000007"]
    save(8, best=True, keep=1)
    assert store.names() == ["step_0000008"]


def test_age_is_the_number_not_the_spelling(store: CheckpointStore, save: Save) -> None:
    for step in (9_999_998, 9_999_999, 10_000_000):
        save(step, keep=2)
    assert store.names() == ["step_9999999", "step_10000000"]
    newest, _ = store.recover()
    assert newest is not None
    assert newest.checkpoint.step == 10_000_000


@pytest.mark.parametrize("pointer", [None, b"", b"\xff\x00", b"step_0000009\n"])
def test_pruning_keeps_the_best_also_where_its_pointer_is_broken(
    store: CheckpointStore, save: Save, pointer: bytes | None
) -> None:
    save(1, best=True)
    path = store.directory / "best"
    path.unlink() if pointer is None else path.write_bytes(pointer)
    save(2, keep=1)
    assert store.require("best").step == 1


def test_a_step_saved_again_replaces_the_old_one(
    store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    save(3)
    (save(4).folder / "model.safetensors").write_bytes(b"damaged")
    assert is_whole(save(4))
    assert listing(store.directory) == ["latest", "step_0000003", "step_0000004"]


def test_pruning_leaves_later_steps_alone_and_the_new_one_in_place(
    store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    save(3)
    (save(4).folder / "model.safetensors").write_bytes(b"damaged")
    save(2, keep=1)
    assert store.names() == ["step_0000002", "step_0000003", "step_0000004"]
    assert is_whole(store.require("latest"))


def test_nothing_saved_yet(store: CheckpointStore) -> None:
    assert store.recover() == (None, {})
    assert store.names() == []
    assert not store.directory.exists()
    for name in ("best", "latest", "step_0000001"):
        with pytest.raises(CheckpointError, match="has no checkpoint: train this run until it has saved one"):
            store.require(name)


def test_a_missing_one_is_reported_with_those_that_are_sound(store: CheckpointStore, save: Save) -> None:
    save(1)
    save(2)
    (save(3).folder / "training_state.json").unlink()
    sound = r"Sound checkpoints: step_0000001, step_0000002\.$"
    with pytest.raises(CheckpointError, match=f"no checkpoint 'step_0000009'. {sound}"):
        store.require("step_0000009")
    (store.directory / "latest").unlink()
    with pytest.raises(CheckpointError, match=f"no checkpoint marked latest.* {sound}"):
        store.require("latest")


@pytest.mark.parametrize(
    "name", ["../elsewhere/step_0000001", "..", "/etc", "", ".", "step_1", "step_0000001/../step_0000001"]
)
def test_no_name_and_no_pointer_leads_outside(
    store: CheckpointStore, save: Save, tmp_path: Path, name: str
) -> None:
    outside = CheckpointStore(tmp_path / "elsewhere")
    outside.save(1, {}, SavedTraining({}, {}), metrics={}, environment={}, tokenizers={}, best=True, keep=1)
    save(1)
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        store.require(name)
    for pointer in ("latest", "best"):
        (store.directory / pointer).write_text(name + "\n")
        with pytest.raises(CheckpointError, match=f"has no checkpoint marked {pointer}"):
            store.require(pointer)
    save(2, keep=1)
    assert outside.require("best").step == 1


def test_recovering_leaves_foreign_files_alone(store: CheckpointStore, save: Save) -> None:
    save(1)
    foreign = ["notes.txt", ".hidden", ".partial-7", "step_1", "step_0000001.bak"]
    for name in foreign:
        (store.directory / name).write_text("mine")
    store.recover()
    save(2, keep=1)
    assert listing(store.directory) == sorted([*foreign, "latest", "step_0000002"])


def test_tensors_under_several_names_are_written_once(store: CheckpointStore) -> None:
    weight = torch.randn(100, 100)
    model = {
        "output.weight": weight,
        "embedding.weight": weight,
        "a.twin": weight.detach(),
        "copy": weight.clone(),
    }
    saved = store.save(
        1, model, SavedTraining({}, {}), metrics={}, environment={}, tokenizers={}, best=False, keep=1
    )
    assert (saved.folder / "model.safetensors").stat().st_size < 2.1 * weight.nbytes
    loaded = store.load_model(saved)
    assert loaded.keys() == model.keys()
    assert all(torch.equal(loaded[name], weight) for name in model)


def test_transposed_tensors_come_back_and_overlapping_ones_are_refused(store: CheckpointStore) -> None:
    weight = torch.randn(3, 4)
    saved = store.save(
        1,
        {"w": weight.T},
        SavedTraining({}, {}),
        metrics={},
        environment={},
        tokenizers={},
        best=False,
        keep=1,
    )
    assert torch.equal(store.load_model(saved)["w"], weight.T)
    with pytest.raises(RuntimeError, match="share memory"):
        store.save(
            2,
            {"w": weight, "row": weight[1]},
            SavedTraining({}, {}),
            metrics={},
            environment={},
            tokenizers={},
            best=False,
            keep=1,
        )
    assert listing(store.directory) == ["latest", "step_0000001"]


def test_an_unreadable_folder_is_reported(store: CheckpointStore) -> None:
    store.directory.parent.mkdir(exist_ok=True)
    store.directory.write_text("a file where the folder should be")
    with pytest.raises(CheckpointError, match=re.escape(f"Cannot read {store.directory}: Not a directory")):
        store.require("best")
    with pytest.raises(CheckpointError, match=r"Cannot save .*step_0000001: File exists"):
        store.save(
            1, {}, SavedTraining({}, {}), metrics={}, environment={}, tokenizers={}, best=False, keep=1
        )
