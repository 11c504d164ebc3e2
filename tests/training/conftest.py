"""A tiny model with its loss, ragged batches, and a run to compare others with."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mt.config.model import ModelConfig
from mt.data.batches.batch import Batch, collate
from mt.run_directory import RunDirectory
from mt.training.loss import Objective
from mt.training.run import run_training
from mt.transformer.build import build_transformer
from tests.fixture_types import AssertSame, MakeBatches, MakeConfig, MakeObjective, TrainUntil
from tests.training.steps import Training, assert_equal

VOCAB_SIZE = 17


@pytest.fixture
def make_objective() -> MakeObjective:
    """Builds the same tiny model each time, in training mode, without dropout unless asked."""

    def make(**changes: Any) -> Objective:
        sizes = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "d_ff": 24}
        config = ModelConfig(**(sizes | {"dropout": 0.0} | changes))
        torch.manual_seed(1)
        return Objective(
            build_transformer(config, src_vocab_size=VOCAB_SIZE, tgt_vocab_size=VOCAB_SIZE, max_length=24)
        )

    return make


@pytest.fixture
def sentence_pairs() -> list[tuple[list[int], list[int]]]:
    """Eleven random pairs, 1 to 8 tokens a side."""
    generator = np.random.default_rng(4)
    return [
        (
            generator.integers(4, VOCAB_SIZE, generator.integers(1, 9)).tolist(),
            generator.integers(4, VOCAB_SIZE, generator.integers(1, 9)).tolist(),
        )
        for _ in range(11)
    ]


@pytest.fixture
def make_batches(sentence_pairs: list[tuple[list[int], list[int]]]) -> MakeBatches:
    """Cuts the pairs, in order, into batches of these sizes."""

    def make(sizes: Sequence[int]) -> list[Batch]:
        ends = np.cumsum(sizes)
        groups = [sentence_pairs[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        return [collate([src for src, _ in group], [tgt for _, tgt in group]) for group in groups]

    return make


@pytest.fixture(scope="session")
def unbroken(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Two epochs of six steps in one session, with a validation after each four steps."""
    run = RunDirectory(tmp_path_factory.mktemp("unbroken"))
    run_training(make_config(), run)
    return run


@pytest.fixture
def assert_same(read_metrics: Callable[[Path], Any], read_curves: Callable[[Path], Any]) -> AssertSame:
    """Compares everything that two runs have written, except times."""

    def compare(one: RunDirectory, other: RunDirectory, *, curves: bool = True) -> None:
        for pointer in ("latest", "best"):
            left, right = [(run.checkpoints_dir / pointer).read_text().strip() for run in (one, other)]
            assert left == right
            folders = one.checkpoints_dir / left, other.checkpoints_dir / right
            assert_equal(*(load_file(folder / "model.safetensors") for folder in folders))
            states = [json.loads((folder / "training_state.json").read_text()) for folder in folders]
            assert [state["state"].pop("seconds") > 0 for state in states] == [True, True]
            assert states[0]["optimizer"]["num_updates"] > 0
            assert states[0] == states[1]
            tensors = [load_file(folder / "training_state.safetensors") for folder in folders]
            assert "optimizer.exp_avg_sq/decoder.norm.weight" in tensors[0]
            assert_equal(*tensors)
        assert read_metrics(one.metrics_file) == read_metrics(other.metrics_file)
        if curves:
            assert read_curves(one.tensorboard_dir) == read_curves(other.tensorboard_dir)

    return compare


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that does not exist yet."""
    return RunDirectory(tmp_path / "runs" / "mine")


@pytest.fixture
def train(make_config: MakeConfig, train_until: TrainUntil, run: RunDirectory) -> Training:
    return Training(make_config, train_until, run)


@pytest.fixture
def finished(unbroken: RunDirectory, run: RunDirectory) -> RunDirectory:
    """A copy of the unbroken run."""
    shutil.copytree(unbroken.path, run.path)
    return run
