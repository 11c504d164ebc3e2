"""What resuming needs besides the model's weights: tensors as safetensors, plain values as JSON.

Tensors are named after their parameters, tied ones once: ``optimizer.exp_avg/NAME`` and
``optimizer.exp_avg_sq/NAME`` are Adam's moments, ``optimizer.momentum/NAME`` is Muon's momentum, and
``weights/NAME`` are the trained weights if the model is a moving average of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from mt.checkpoint.record import TENSORS, VALUES, DamagedError

EXP_AVG, EXP_AVG_SQ, WEIGHTS = "optimizer.exp_avg/", "optimizer.exp_avg_sq/", "weights/"
MOMENTUM = "optimizer.momentum/"


@dataclass(frozen=True)
class SavedTraining:
    """The training state of a checkpoint, as it is in its files."""

    values: Mapping[str, Any]
    """Counters and other plain values, as in JSON."""
    tensors: dict[str, Tensor]
    """By kind and parameter, on the CPU."""

    def weights(self) -> dict[str, Tensor]:
        """The trained weights by name; empty if they are the model itself."""
        names = (name for name in self.tensors if name.startswith(WEIGHTS))
        return {name.removeprefix(WEIGHTS): self.tensors[name] for name in names}


def values_bytes(saved: SavedTraining) -> bytes:
    """The plain values as JSON."""
    return (json.dumps(saved.values, indent=1) + "\n").encode()


def read_training_state(tensors: bytes, values: bytes) -> SavedTraining:
    """The training state from its two files."""
    try:
        saved = SavedTraining(json.loads(values), safetensors.torch.load(tensors))
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise DamagedError(f"{TENSORS} or {VALUES} is not a training state written by mt") from error
    if not isinstance(saved.values, dict):
        raise DamagedError(f"{VALUES} is not a training state written by mt")
    return saved
