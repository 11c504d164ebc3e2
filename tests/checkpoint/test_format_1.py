"""Training states of format 1: torch's own files are read as torch reads them, and all else is refused."""

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mt.checkpoint.format_1 import read_format_1
from mt.checkpoint.record import DamagedError
from mt.checkpoint.training_state import EXP_AVG, EXP_AVG_SQ, WEIGHTS


def content(**changes: Any) -> dict[str, Any]:
    """What mt saved in format 1, of a model with two parameters."""
    torch.manual_seed(3)
    weights = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(5))]
    optimizer = torch.optim.AdamW(weights, fused=True)
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        optimizer.step()
    return {
        "average": {"num_updates": 2, "weights": OrderedDict(a=torch.randn(3, 2), b=torch.randn(5))},
        "optimizer": optimizer.state_dict(),
        "scaler": {},
        "state": {
            "step": 2,
            "seconds": 1.5,
            "num_target_tokens": 2**40,
            "best_value": float("nan"),
            "owes": False,
        },
        "random": {"cpu": torch.get_rng_state()},
    } | changes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "training_state.pt"


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the pickle in an archive."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, change(data) if name.endswith("data.pkl") else data)


def test_it_is_read_as_torch_reads_it(path: Path) -> None:
    torch.save(content(), path)
    theirs = torch.load(path, weights_only=True)
    saved = read_format_1(path.read_bytes())
    assert saved.is_format_1
    assert str(saved.values["state"]) == str(theirs["state"])
    assert saved.values["optimizer"] == {"num_updates": 2}
    assert saved.values["average"] == {"num_updates": 2}
    assert saved.values["scaler"] is None
    expected = {WEIGHTS + name: weight for name, weight in theirs["average"]["weights"].items()}
    for number, moments in theirs["optimizer"]["state"].items():
        expected |= {f"{EXP_AVG}{number}": moments["exp_avg"], f"{EXP_AVG_SQ}{number}": moments["exp_avg_sq"]}
    assert saved.tensors.keys() == expected.keys()
    assert all(torch.equal(saved.tensors[name], expected[name]) for name in expected)
    named = saved.with_names(["first", "second"]).tensors
    assert torch.equal(named[f"{EXP_AVG}second"], expected[f"{EXP_AVG}1"])
    with pytest.raises(DamagedError, match="more parameters than the model has"):
        saved.with_names(["first"])


def test_the_scale_of_fp16_is_read(path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.ones(()))
    torch.save(content(scaler=scaler.state_dict()), path)
    assert read_format_1(path.read_bytes()).values["scaler"] == {"scale": 1024.0, "growth_tracker": 0}


class Malicious:
    """Makes a folder where a pickle of it is opened without care."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("packing", ["torch", "old torch", "bare pickle"])
def test_a_malicious_pickle_is_refused_and_not_executed(path: Path, tmp_path: Path, packing: str) -> None:
    trace = tmp_path / "executed"
    if packing == "bare pickle":
        path.write_bytes(pickle.dumps({"epoch": Malicious(trace)}))
        pickle.loads(path.read_bytes())
    else:
        torch.save({"epoch": Malicious(trace)}, path, _use_new_zipfile_serialization=packing == "torch")
        torch.load(path, weights_only=False)
    trace.rmdir()  # Opened without care it does its harm.
    with pytest.raises(DamagedError, match="not a training state written by mt"):
        read_format_1(path.read_bytes())
    assert not trace.exists()


def test_a_decompression_bomb_is_refused_before_it_is_unpacked(path: Path) -> None:
    torch.save(content(random={"cpu": torch.zeros(10_000_000)}), path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    assert path.stat().st_size < 100_000
    with pytest.raises(DamagedError, match="is compressed"):
        read_format_1(path.read_bytes())


def test_records_that_share_their_bytes_are_refused(path: Path) -> None:
    # Each entry of the directory points at the same megabyte: a hundred of them unpack to a hundred.
    megabyte = b"\0" * 1_000_000
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, 2))
        archive.writestr("archive/data/0", megabyte)
        shared = archive.infolist()[-1]
        for number in range(1, 100):
            entry = zipfile.ZipInfo(f"archive/data/{number}")
            for name in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(entry, name, getattr(shared, name))
            archive.filelist.append(entry)
            archive.NameToInfo[entry.filename] = entry
    assert path.stat().st_size < 1_100_000
    with pytest.raises(DamagedError, match="is compressed"):
        read_format_1(path.read_bytes())


def test_two_records_of_one_name_are_refused(path: Path) -> None:
    torch.save(content(), path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr(archive.namelist()[0], b"")
    with pytest.raises(DamagedError):
        read_format_1(path.read_bytes())


def test_a_pickle_larger_than_any_that_mt_wrote_is_not_read(path: Path) -> None:
    torch.save(content(state={str(number): number for number in range(400_000)}), path)
    with pytest.raises(DamagedError):
        read_format_1(path.read_bytes())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(10**12),
        torch.zeros(10)[2:7],
        torch.zeros(4, 3).T,
        torch.zeros(3, 2, dtype=torch.float64),
        torch.nn.Parameter(torch.zeros(3, 2)),
        torch.zeros(3, 2).to_sparse(),
        [[1.0]],
        None,
    ],
    ids=[
        "stride 0",
        "part of a storage",
        "transposed",
        "other type",
        "parameter",
        "sparse",
        "list",
        "nothing",
    ],
)
def test_a_tensor_must_own_exactly_what_its_shape_says(path: Path, tensor: object) -> None:
    torch.save(content(average={"num_updates": 2, "weights": {"a": tensor}}), path)
    with pytest.raises(DamagedError):
        read_format_1(path.read_bytes())


@pytest.mark.parametrize("is_view", [False, True])
def test_a_storage_that_two_tensors_share_is_refused(path: Path, is_view: bool) -> None:
    # A pickle of a megabyte could name one storage of a megabyte ten thousand times.
    shared = torch.zeros(3)
    weights = {"a": shared, "b": shared.view(3) if is_view else shared}
    torch.save(content(average={"num_updates": 2, "weights": weights}), path)
    with pytest.raises(DamagedError):
        read_format_1(path.read_bytes())


def test_a_storage_that_claims_more_than_its_record_has_is_refused(path: Path) -> None:
    # torch takes the pickle's word for it, and reads beyond.
    torch.save(content(average={"num_updates": 2, "weights": {"a": torch.zeros(77)}}), path)
    rewrite(path, lambda data: data.replace(b"K\x4d", b"K\x7f"))
    with pytest.raises(DamagedError):
        read_format_1(path.read_bytes())


def test_a_large_piece_of_memory_is_not_made_on_the_pickles_word(path: Path) -> None:
    torch.save(content(), path)
    # bytearray(10**12), which the reader of weights_only allows.
    call = b"cbuiltins\nbytearray\n\x8a\x06" + struct.pack("<q", 10**12)[:6] + b"\x85R"
    rewrite(path, lambda data: b"\x80\x02}X\x01\x00\x00\x00a" + call + b"s.")
    with pytest.raises(DamagedError):
        read_format_1(path.read_bytes())


def test_nested_tuples_as_a_key_do_not_hang(path: Path) -> None:
    torch.save(content(), path)
    # ((((), ()), ((), ())), ...), 60 deep: a few bytes, whose hash takes 2**60 steps.
    nested = b")" + b"q\x00h\x00\x86" * 60
    rewrite(path, lambda data: b"\x80\x02}" + nested + b"K\x01s.")
    with pytest.raises(DamagedError):
        read_format_1(path.read_bytes())


@pytest.mark.parametrize(
    "changed",
    [
        [1, 2],
        torch.zeros(3),
        None,
        {},
        content(optimizer={}),
        content(optimizer={"state": {}, "param_groups": [], "more": 1}),
        content(optimizer={"state": {0: {"step": torch.ones(())}}, "param_groups": []}),
        content(optimizer={"state": {"0": 1}, "param_groups": []}),
        content(state=[1]),
        content(scaler={"scale": 1.0}),
        content(average=None, more=1),
        {name: value for name, value in content().items() if name != "optimizer"},
        {name: value for name, value in content().items() if name != "state"},
    ],
)
def test_another_content_is_refused(path: Path, changed: object) -> None:
    torch.save(changed, path)
    with pytest.raises(DamagedError, match=r"training_state\.pt is not a training state"):
        read_format_1(path.read_bytes())


@pytest.mark.parametrize("step", [float("nan"), float("inf"), 1.5])
def test_a_count_of_steps_that_is_none_is_refused(path: Path, step: float) -> None:
    changed = content()
    changed["optimizer"]["state"][0]["step"].fill_(step)
    changed["optimizer"]["state"][1]["step"].fill_(step)
    torch.save(changed, path)
    with pytest.raises(DamagedError):
        read_format_1(path.read_bytes())


def test_no_flipped_byte_gets_out_of_hand(path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(content(), buffer)
    sound = buffer.getvalue()
    read = 0
    for position in range(0, len(sound), 7):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            read_format_1(path.read_bytes())
            read += 1
        except DamagedError:
            pass
    # Most bytes are those of padding and of the generator's state.
    assert read < len(range(0, len(sound), 7))
