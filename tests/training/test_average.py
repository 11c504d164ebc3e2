"""The average of checkpoints, against a mean computed from their files."""

import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from mt.checkpoint.record import RECORD, record_text
from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.errors import CheckpointError
from mt.run_directory import RunDirectory
from mt.training.average import average_checkpoints
from mt.training.run import run_training

CPU = torch.device("cpu")


def test_it_is_the_mean_of_the_last(trained: RunDirectory) -> None:
    before = {path: path.read_bytes() for path in trained.checkpoints_dir.rglob("*") if path.is_file()}
    average = average_checkpoints(trained, 2, best=False)
    assert average.name == "average_0000200"
    assert (average.average_of, average.metrics) == (["step_0000150", "step_0000200"], {})
    files = [trained.checkpoints_dir / name / "model.safetensors" for name in average.average_of]
    first, second = map(load_file, files)
    mean = load_file(average.folder / "model.safetensors")
    assert mean.keys() == first.keys()
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (first[name] + second[name]) / 2, rtol=1e-6, atol=1e-7)
    assert sorted(path.name for path in average.folder.iterdir()) == ["checkpoint.json", "model.safetensors"]
    assert all(path.read_bytes() == content for path, content in before.items())


@pytest.mark.parametrize(("metric", "best"), [("bleu", 0), ("loss", 1)])
def test_the_best_are_those_with_the_best_score(
    metric: str, best: int, trained: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    text = trained.config_file.read_text()
    trained.config_file.write_text(text.replace("metric: bleu", f"metric: {metric}"))
    store = CheckpointStore(trained.checkpoints_dir)
    judged = [name for name in store.names() if "bleu" in store.require(name).metrics]
    for name, score in zip(judged, (90.0, 80.0), strict=True):
        checkpoint = replace(store.require(name), metrics={metric: score})
        (checkpoint.folder / RECORD).write_text(record_text(checkpoint))
    assert average_checkpoints(trained, 1, best=True).average_of == [judged[best]]
    assert "to average" not in caplog.text
    # Those that are chosen are in the order of their steps, whatever their scores.
    assert average_checkpoints(trained, 9, best=True).average_of == judged
    assert "has 2 checkpoints to average instead of 9" in caplog.text


def test_one_that_is_only_there_because_it_is_the_best_is_not_among_the_last(
    trained: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    oldest, *newer = CheckpointStore(trained.checkpoints_dir).names()
    text = trained.config_file.read_text()
    trained.config_file.write_text(text.replace("keep: 3", f"keep: {len(newer)}"))
    (trained.checkpoints_dir / "best").write_text(f"{oldest}\n")
    assert average_checkpoints(trained, 5, best=False).average_of == newer
    assert f"has {len(newer)} checkpoints to average instead of 5" in caplog.text
    # Without it there is only one left.
    trained.config_file.write_text(text.replace("keep: 3", "keep: 1"))
    for name in newer[:-1]:
        shutil.rmtree(trained.checkpoints_dir / name)
    with pytest.raises(CheckpointError, match="has 1 checkpoint to average, but 2 or more are needed"):
        average_checkpoints(trained, 5, best=False)
    # But it may be asked for.
    assert average_checkpoints(trained, 1, best=False).average_of == newer[-1:]
    # Others of which fewer are to be kept from now on are not left out.
    (trained.checkpoints_dir / "best").write_text(f"{newer[-1]}\n")
    assert average_checkpoints(trained, 5, best=False).average_of == [oldest, newer[-1]]
    # It may be one of the last by itself.
    trained.config_file.write_text(text)
    assert average_checkpoints(trained, 5, best=False).average_of == [oldest, newer[-1]]


def test_a_damaged_one_is_named_and_nothing_is_left(trained: RunDirectory) -> None:
    file = trained.checkpoints_dir / "step_0000150" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"step_0000150 is damaged: .* Sound checkpoints: "):
        average_checkpoints(trained, 2, best=False)
    assert CheckpointStore(trained.checkpoints_dir).averages() == []


def test_training_continues_beside_it(trained: RunDirectory) -> None:
    average = average_checkpoints(trained, 2, best=False)
    content = (average.folder / "model.safetensors").read_bytes()
    config = load_config(trained.config_file, ["training.max_steps=202", "checkpoint.keep=1"])
    assert run_training(config, trained).counters.step == 202
    assert (average.folder / "model.safetensors").read_bytes() == content
    assert (trained.checkpoints_dir / "latest").read_text() == "step_0000202\n"


@pytest.mark.parametrize("number", [0, -2])
def test_none_at_all_are_not_averaged(number: int, trained: RunDirectory) -> None:
    for best in (False, True):
        with pytest.raises(CheckpointError, match=f"cannot average {number} checkpoints"):
            average_checkpoints(trained, number, best=best)
