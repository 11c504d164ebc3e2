"""Saving, pointing, pruning, and reading what was saved; no damaged or foreign part is ever loaded."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors.torch import load_file

from mt.checkpoint.record import Checkpoint, DamagedError, read_record
from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import read_training_state
from mt.errors import CheckpointError
from tests.checkpoint.conftest import listing, model_of
from tests.fixture_types import IsWhole, Save

MODEL = "model.safetensors"


def test_a_saved_checkpoint_is_loaded_bit_for_bit(
    store: CheckpointStore, save: Save, is_whole: IsWhole
) -> None:
    saved = save(4000, best=True)
    loaded = CheckpointStore(store.directory).require("latest")
    assert loaded == saved
    # JSON has no NaN.
    assert (loaded.step, loaded.best, loaded.metrics) == (4000, True, {"bleu": 40.0})
    assert (loaded.environment, loaded.tokenizers) == ({"torch": "2", "threads": 2}, {"src": "1", "tgt": "2"})
    assert loaded.computation == {"model.bias": True}
    assert is_whole(loaded)
    # The folder is laid out as documented, and the same for the same.
    assert listing(store.directory) == ["best", "latest", "step_0004000"]
    assert {(store.directory / pointer).read_text() for pointer in ("best", "latest")} == {"step_0004000\n"}
    contents = {path.name: path.read_bytes() for path in saved.folder.iterdir()}
    assert set(contents) == {MODEL, "checkpoint.json", "training_state.json", "training_state.safetensors"}
    assert load_file(saved.folder / MODEL)["count"].item() == 4000
    assert json.loads(contents["training_state.json"])["epoch"] == 3
    moments = load_file(saved.folder / "training_state.safetensors")
    assert moments["optimizer.exp_avg/weight"].shape == (3, 2)
    again = save(4000, best=True).folder
    assert {path.name: path.read_bytes() for path in again.iterdir()} == contents


def test_an_average_is_beside_the_checkpoints_whose_mean_it_is(store: CheckpointStore, save: Save) -> None:
    both = [save(2, best=True), save(1)]
    average = store.save_average(both)
    assert (average.name, average.step, average.best) == ("average_0000002", 2, False)
    assert (average.metrics, average.average_of) == ({}, ["step_0000002", "step_0000001"])
    assert listing(average.folder) == ["checkpoint.json", MODEL]
    assert store.require("average_0000002") == average
    weights = store.load_model(average)
    for name, weight in model_of(1).items():
        mean = ((weight.double() + model_of(2)[name].double()) / 2).to(weight.dtype)
        assert weights[name].dtype == weight.dtype
        assert torch.equal(weights[name], mean)
    assert (store.names(), store.averages()) == (["step_0000001", "step_0000002"], ["average_0000002"])
    assert store.traces() == ["latest", "best", "average_0000002"]
    with pytest.raises(
        CheckpointError, match="Sound checkpoints: step_0000001, step_0000002, average_0000002"
    ):
        store.require("step_0000009")
    assert [store.last_best(step) for step in (1, 2, 3)] == [None, "step_0000002", "step_0000002"]


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
    # By their numbers, which may get more digits.
    for step in (9_999_999, 10_000_000):
        save(step)
    assert store.names() == ["step_0000008", "step_9999999", "step_10000000"]


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
        with pytest.raises(CheckpointError, match="train until it has saved one"):
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


Damage = Callable[[Path], None]
PARTS = (MODEL, "training_state.safetensors", "training_state.json", "checkpoint.json")


def flip_bit(offset: float) -> Damage:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(offset * (len(data) - 1))] ^= 1 << 5
        path.write_bytes(data)

    return flip


def truncate_to(share: float) -> Damage:
    return lambda path: os.truncate(path, int(share * path.stat().st_size))


DAMAGES = {
    **{f"bit flipped at {offset}": flip_bit(offset) for offset in (0, 0.5, 1)},
    **{f"cut to {share}": truncate_to(share) for share in (0, 0.99)},
    "one byte more": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "not JSON": lambda path: path.write_bytes(b"[" * 100_000),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_training_names_the_damaged_one_and_readers_never_get_another(
    store: CheckpointStore, save: Save, is_whole: IsWhole, part: str, damage: Damage
) -> None:
    save(1, best=True)
    damage(save(2, best=True).folder / part)
    if not part.startswith("training_state"):
        message = rf"step_0000002 is damaged: {part} .*Sound checkpoints: step_0000001\.$"
        with pytest.raises(CheckpointError, match=message):
            store.load_model(store.require("best"))
    recovered, damaged = store.recover()
    assert recovered is not None
    assert recovered.checkpoint.step == 1
    assert is_whole(recovered.checkpoint)
    assert list(damaged) == ["step_0000002"]
    assert part in damaged["step_0000002"]
    assert store.require("latest") == store.require("best") == recovered.checkpoint


def test_a_flipped_bit_in_any_byte_of_the_record_is_noticed(save: Save) -> None:
    path = save(1).folder / "checkpoint.json"
    sound = path.read_bytes()
    for position in range(len(sound)):
        data = bytearray(sound)
        data[position] ^= 1 << position % 8
        path.write_bytes(data)
        with pytest.raises(DamagedError):
            read_record(path.parent)


def test_if_none_is_sound_training_does_not_start_over(store: CheckpointStore, save: Save) -> None:
    for step in (1, 2):
        (save(step).folder / MODEL).unlink()
    with pytest.raises(CheckpointError, match=r"step_0000002: model.*step_0000001: model.*--restart"):
        store.recover()
    assert len(store.names()) == 2
    with pytest.raises(CheckpointError, match="There is no sound one"):
        store.load_model(store.require("latest"))


def test_folders_with_another_name_and_mixed_parts_are_not_taken(store: CheckpointStore, save: Save) -> None:
    old, new = save(1), save(2)
    (old.folder / MODEL).replace(new.folder / MODEL)
    with pytest.raises(CheckpointError, match="its checksum differs"):
        store.load_model(new)
    old.folder.rename(store.directory / "step_0000005")
    with pytest.raises(CheckpointError, match=r"step_0000005 is damaged: .*belongs to step 1"):
        store.require("step_0000005")


def rewrite_record(folder: Path, **changes: object) -> None:
    """Change the record and its seal, as version 2 of the format is documented."""
    path = folder / "checkpoint.json"
    content = {**json.loads(path.read_text()), **changes, "seal": "0" * 64}
    text = json.dumps(content)
    path.write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1))


def put_weights(checkpoint: Checkpoint, content: bytes) -> None:
    """Other weights, and a record whose checksums fit them."""
    (checkpoint.folder / MODEL).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    rewrite_record(checkpoint.folder, checksums={**checkpoint.checksums, MODEL: digest})


def test_the_seal_is_that_of_format_2(store: CheckpointStore, save: Save) -> None:
    rewrite_record(save(1).folder, metrics={"bleu": 99})
    assert store.require("latest").metrics == {"bleu": 99.0}


def test_a_newer_format_is_refused_with_the_version_that_reads_it(store: CheckpointStore, save: Save) -> None:
    save(1)
    rewrite_record(save(2).folder, format_version=3, mt_version="7.8.9")
    message = r"step_0000002 has format 3, .* reads format 2. Read it with .*, mt 7\.8\.9\."
    with pytest.raises(CheckpointError, match=message):
        store.require("latest")
    # Not damaged, so training does not continue from the older one either.
    with pytest.raises(CheckpointError, match=message):
        store.recover()


def test_a_record_with_the_wrong_fields_is_damaged(store: CheckpointStore, save: Save) -> None:
    wrong: dict[str, list[object]] = {
        "step": ["many"],
        "metrics": [{"bleu": "good"}],
        "checksums": [{MODEL: 5}, {"../../model.safetensors": "x"}],
        "environment": [{"note": "x" * 2_000_000}],
    }
    for field, values in wrong.items():
        for value in values:
            rewrite_record(save(1).folder, **{field: value})
            with pytest.raises(CheckpointError, match="step_0000001 is damaged"):
                store.load_model(store.require("latest"))


def test_a_file_that_is_not_a_model_is_refused(store: CheckpointStore, save: Save) -> None:
    large = '{"w": {"dtype": "F32", "shape": [1099511627776], "data_offsets": [0, 4398046511104]}}'
    for header in ("{", large):
        put_weights(save(1), len(header).to_bytes(8, "little") + header.encode())
        with pytest.raises(CheckpointError, match=r"model\.safetensors is not a model written by mt"):
            store.load_model(store.require("latest"))
    with pytest.raises(DamagedError, match="not a training state written by mt"):
        read_training_state(safetensors.torch.save({}), b"[]")


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_finite_are_refused_by_name(
    store: CheckpointStore, save: Save, value: float, dtype: torch.dtype
) -> None:
    model = {"a": torch.ones(0), "b": torch.ones(2, 3, dtype=dtype), "count": torch.tensor(3)}
    model["b"][1, 1] = value
    put_weights(save(2), safetensors.torch.save(model, {"other_names": "{}"}))
    with pytest.raises(CheckpointError, match="step_0000002 is damaged: the weight b"):
        store.load_model(store.require("latest"))
