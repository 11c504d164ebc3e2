"""A run that was saved on a GPU continues without one, to the same weights as one saved on the CPU."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest
import torch

from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.run_directory import RunDirectory
from mt.training.run import run_training

FORMAT_1 = Path(__file__).parent / "format_1"


def save_as_on_a_gpu(checkpoint: Path) -> None:
    """Let each tensor of the training state say that it was on cuda:0, as `torch.save` writes it there."""
    file = checkpoint / "training_state.pt"
    old_checksum = hashlib.sha256(file.read_bytes()).hexdigest()
    state = torch.load(file, map_location="cpu", weights_only=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        torch.save(state, file)
    record = checkpoint / "checkpoint.json"
    text = record.read_text().replace(old_checksum, hashlib.sha256(file.read_bytes()).hexdigest())
    blank = re.sub('"seal": "[0-9a-f]{64}"', f'"seal": "{"0" * 64}"', text)
    record.write_text(blank.replace("0" * 64, hashlib.sha256(blank.encode()).hexdigest(), 1))


def weights_after_three_more_steps(folder: Path, *, saved_on_a_gpu: bool) -> dict[str, torch.Tensor]:
    shutil.copytree(FORMAT_1, folder)
    run = RunDirectory(folder / "run")
    if saved_on_a_gpu:
        save_as_on_a_gpu(run.checkpoints_dir / "step_0000600")
    more = [f"data.path={folder / 'corpus'}", "training.max_steps=603", "validation.every_steps=603"]
    outcome = run_training(load_config(run.config_file, [*more, "training.device=cpu"]), run)
    assert outcome.counters.step == 603
    store = CheckpointStore(run.checkpoints_dir)
    return store.load_model(store.require("latest"))


def test_a_run_saved_on_a_gpu_continues_without_one(tmp_path: Path) -> None:
    expected = weights_after_three_more_steps(tmp_path / "cpu", saved_on_a_gpu=False)
    found = weights_after_three_more_steps(tmp_path / "gpu", saved_on_a_gpu=True)
    assert expected.keys() == found.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
