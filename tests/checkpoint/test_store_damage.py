"""No altered, truncated, missing, foreign or malicious part is ever loaded."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mt.checkpoint import record
from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.errors import CheckpointError

Save = Callable[..., Checkpoint]
IsWhole = Callable[[Checkpoint], bool]
Damage = Callable[[Path], None]
PARTS = ("model.safetensors", "training_state.safetensors", "training_state.json", "checkpoint.json")


def flip_bit(offset: float, bit: int) -> Damage:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(offset * (len(data) - 1))] ^= 1 << bit
        path.write_bytes(data)

    return flip


def truncate_to(share: float) -> Damage:
    return lambda path: os.truncate(path, int(share * path.stat().st_size))


DAMAGES = {
    **{
        f"bit {bit} at {offset}": flip_bit(offset, bit)
        for offset in (0, 0.01, 0.3, 0.5, 0.8, 1)
        for bit in (0, 5)
    },
    **{f"cut to {share}": truncate_to(share) for share in (0, 0.5, 0.99)},
    "one byte more": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_training_names_the_damaged_one_and_continues_from_the_newest_sound_one(
    store: CheckpointStore, save: Save, is_whole: IsWhole, part: str, damage: Damage
) -> None:
    save(1)
    save(2)
    damage(save(3).folder / part)
    recovered, damaged = store.recover()
    assert recovered is not None
    newest = recovered.checkpoint
    assert newest.step == 2
    assert is_whole(newest)
    assert list(damaged) == ["step_0000003"]
    assert part in damaged["step_0000003"]
    assert store.require("latest") == newest


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_whoever_asks_for_a_damaged_one_gets_an_error_and_never_another(
    store: CheckpointStore, save: Save, part: str, damage: Damage
) -> None:
    save(1)
    damage(save(2, best=True).folder / part)
    load = store.load_training_state if part.startswith("training_state") else store.load_model
    message = rf"step_0000002 is damaged: {part} .*Sound checkpoints: step_0000001\.$"
    with pytest.raises(CheckpointError, match=message):
        load(store.require("best"))


def test_plain_values_have_a_largest_size(store: CheckpointStore, save: Save) -> None:
    saved = save(1)
    (saved.folder / "training_state.json").write_bytes(b"{" + b" " * 100_000 + b"}")
    forge(saved, "training_state.json")
    with pytest.raises(
        CheckpointError, match=r"training_state\.json cannot be read \(it is larger than 100,000"
    ):
        store.load_training_state(store.require("latest"))


def test_a_flipped_bit_in_any_byte_of_the_record_is_found(save: Save) -> None:
    path = save(1).folder / "checkpoint.json"
    sound = path.read_bytes()
    for position in range(len(sound)):
        data = bytearray(sound)
        data[position] ^= 1 << position % 8
        path.write_bytes(data)
        with pytest.raises(record.DamagedError):
            record.read_record(path.parent)
    path.write_bytes(sound)
    assert record.read_record(path.parent).step == 1


def test_where_none_is_sound_training_does_not_start_over(store: CheckpointStore, save: Save) -> None:
    for step in (1, 2):
        (save(step).folder / "model.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"step_0000002: model.*step_0000001: model.*Start the run over"
    ):
        store.recover()
    assert len(store.names()) == 2
    with pytest.raises(CheckpointError, match="There is no sound one"):
        store.load_model(store.require("latest"))


def test_best_goes_back_with_training_where_the_newer_best_is_damaged(
    store: CheckpointStore, save: Save
) -> None:
    save(1, best=True)
    save(2)
    (save(3, best=True).folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="step_0000003 is damaged"):
        store.load_model(store.require("best"))
    store.recover()
    assert store.require("best").step == 1


@pytest.mark.parametrize("first_is_best", [True, False])
def test_a_damaged_checkpoint_that_training_passes_is_neither_kept_nor_the_best(
    first_is_best: bool, store: CheckpointStore, save: Save
) -> None:
    save(1, best=first_is_best, keep=2)
    save(2, keep=2)
    (save(3, best=True, keep=3).folder / "model.safetensors").unlink()
    store.recover()
    # Training now saves other steps than before.
    save(4, keep=2)
    assert store.names() == ["step_0000001"] * first_is_best + ["step_0000002", "step_0000004"]
    assert store.require("best").step == (1 if first_is_best else 4)


def test_a_folder_under_another_name_is_not_taken(store: CheckpointStore, save: Save) -> None:
    save(1).folder.rename(store.directory / "step_0000005")
    with pytest.raises(CheckpointError, match=r"step_0000005 is damaged: checkpoint\.json belongs to step 1"):
        store.require("step_0000005")


def test_parts_of_two_checkpoints_do_not_mix(store: CheckpointStore, save: Save) -> None:
    old, new = save(1), save(2)
    (old.folder / "model.safetensors").replace(new.folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="its checksum differs"):
        store.load_model(new)


def test_a_newer_format_is_refused_with_the_version_that_reads_it(
    store: CheckpointStore, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(1)
    with monkeypatch.context() as newer:
        newer.setattr(record, "__version__", "7.8.9")
        saved = save(2)
    rewrite_record(saved.folder, format_version=3)
    message = r"step_0000002 has format 3, .* reads format 2. Read it with .*, mt 7\.8\.9\."
    with pytest.raises(CheckpointError, match=message):
        store.require("latest")
    # Not damaged, so not passed over in favour of the older one either.
    with pytest.raises(CheckpointError, match=message):
        store.recover()


def rewrite_record(folder: Path, **changes: object) -> None:
    """Change the record as someone would who knows how it is sealed (written out here by hand)."""
    path = folder / "checkpoint.json"
    content = {**json.loads(path.read_text()), **changes, "seal": "0" * 64}
    text = json.dumps(content)
    path.write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1))


def forge(checkpoint: Checkpoint, part: str) -> None:
    """Make the checksums fit whatever the part holds now."""
    digest = hashlib.sha256((checkpoint.folder / part).read_bytes()).hexdigest()
    rewrite_record(checkpoint.folder, checksums={**checkpoint.checksums, part: digest})


def test_the_seal_is_the_documented_one(store: CheckpointStore, save: Save) -> None:
    rewrite_record(save(1).folder, metrics={"bleu": 99})
    assert store.require("latest").metrics == {"bleu": 99.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "many"},
        {"step": None},
        {"metrics": []},
        {"metrics": {"bleu": "good"}},
        {"checksums": {"model.safetensors": 5}},
        {"environment": 3},
        {"checksums": {"../../model.safetensors": "x"}},
        {"checksums": {}},
    ],
)
def test_a_record_with_the_wrong_fields_is_damaged(
    store: CheckpointStore, save: Save, changes: dict[str, object]
) -> None:
    rewrite_record(save(1).folder, **changes)
    with pytest.raises(CheckpointError, match="step_0000001 is damaged"):
        store.load_model(store.require("latest"))


@pytest.mark.parametrize(
    "text", ["[]", "null", "[" * 100_000, '{"seal": 5}', '{"seal": ""}', "1" * 10_000, " " * 2_000_000]
)
def test_a_record_that_is_something_else_is_damaged(store: CheckpointStore, save: Save, text: str) -> None:
    (save(1).folder / "checkpoint.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"is damaged: checkpoint\.json"):
        store.require("latest")


def test_a_record_of_a_size_that_mt_never_writes_is_not_read(store: CheckpointStore, save: Save) -> None:
    rewrite_record(save(1).folder, environment={"note": "x" * 2_000_000})
    with pytest.raises(CheckpointError, match=r"checkpoint\.json cannot be read \(it is larger than"):
        store.require("latest")


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"__metadata__": {"other_names": "{"}},
        {"__metadata__": {"other_names": "[]"}},
        {"__metadata__": {"other_names": '{"a": "b"}'}},
        {"__metadata__": {"other_names": '{"a": []}'}},
        {"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}},
    ],
)
def test_a_forged_model_is_refused(store: CheckpointStore, save: Save, header: dict[str, object]) -> None:
    saved = save(1)
    text = json.dumps(header).encode()
    (saved.folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    forge(saved, "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a model written by mt"):
        store.load_model(store.require("latest"))
