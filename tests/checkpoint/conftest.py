"""Small checkpoints whose every tensor and value is a function of the step."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mt.checkpoint.record import TENSORS, VALUES, Checkpoint, read_part
from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import SavedTraining, read_training_state


def model_of(step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return {
        "embedding.weight": torch.randn(11, 4, generator=generator),
        "norm.bias": torch.randn(4, generator=generator, dtype=torch.float64),
        "half": torch.randn(3, 5, generator=generator).to(torch.bfloat16),
        "count": torch.tensor(step),
        "empty": torch.empty(0, 4),
    }


def training_state_of(step: int) -> SavedTraining:
    generator = torch.Generator().manual_seed(step)
    weight = torch.nn.Parameter(torch.randn(3, 2, generator=generator))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.randn(3, 2, generator=generator)
    optimizer.step()
    moments = optimizer.state[weight]
    tensors = {f"optimizer.{name}/weight": moments[name] for name in ("exp_avg", "exp_avg_sq")}
    values = {"epoch": 3, "best_score": float("-inf"), "nested": {"1": [2, "x", None, True]}, "step": step}
    return SavedTraining(values, tensors)


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Equal in names, dtypes and bits."""
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]) for name in left
    )


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints")


@pytest.fixture
def save(store: CheckpointStore) -> Callable[..., Checkpoint]:
    """Saves the checkpoint of one step: ``save(step, best=False, keep=3)``."""

    def save(step: int, *, best: bool = False, keep: int = 3) -> Checkpoint:
        checkpoint = Checkpoint(
            step=step,
            best=best,
            metrics={"bleu": step / 100, "loss": math.nan, "chrf": math.inf},
            environment={"torch": "2", "threads": 2},
            tokenizers={"src": "1", "tgt": "2"},
            computation={"model.bias": True},
        )
        return store.save(checkpoint, model_of(step), training_state_of(step), keep=keep)

    return save


@pytest.fixture
def is_whole(store: CheckpointStore) -> Callable[[Checkpoint], bool]:
    """Says whether a checkpoint loads, and is what was saved for its step."""

    def is_whole(checkpoint: Checkpoint) -> bool:
        expected = training_state_of(checkpoint.step)
        state = read_training_state(read_part(checkpoint, TENSORS), read_part(checkpoint, VALUES))
        return (
            same(store.load_model(checkpoint), model_of(checkpoint.step))
            and state.values == expected.values
            and same(state.tensors, expected.tensors)
        )

    return is_whole
