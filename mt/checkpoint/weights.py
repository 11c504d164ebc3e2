"""The weights of a checkpoint: written and read as safetensors, held open, and averaged.

Reading executes nothing. The checksum guards against accidents; names, shapes and values are checked too.
"""

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from mt.checkpoint.record import (
    MODEL,
    Checkpoint,
    DamagedError,
    explain_unreadable,
    opened_folder,
    read_record,
    refuse_other_checksum,
    unless_vanished,
)

# The limit of the safetensors library.
_MAX_HEADER_BYTES = 100_000_000
_METADATA = "__metadata__"


@dataclass(frozen=True)
class HeldCheckpoint:
    """A checkpoint whose weights are held open, so that all of it is from one save, even if it is pruned."""

    checkpoint: Checkpoint
    """Its record."""
    weights: BufferedReader
    """The open file of its weights."""

    def model_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, by its name, from the header of the file alone; not verified."""
        with explain_unreadable(MODEL), _explain_malformed():
            self.weights.seek(0)
            header = _header(self.weights)
            shapes = {
                name: tuple(map(int, entry["shape"])) for name, entry in header.items() if name != _METADATA
            }
            return shapes | {name: shapes[first] for name, first in _other_names(header).items()}

    def load_model(self) -> dict[str, Tensor]:
        """Its weights by name, on the CPU, verified."""
        return read_model(self.weights, self.checkpoint)


@contextmanager
def open_checkpoint(folder: Path) -> Iterator[HeldCheckpoint]:
    """Open record and weights of the checkpoint in ``folder``, for the length of a ``with``."""
    with opened_folder(folder) as opened:
        with unless_vanished(folder, opened), explain_unreadable(MODEL):
            weights = os.fdopen(os.open(MODEL, os.O_RDONLY, dir_fd=opened), "rb")
        with weights:
            with unless_vanished(folder, opened):
                checkpoint = read_record(folder, opened=opened)
            yield HeldCheckpoint(checkpoint, weights)


def load_model(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights of a checkpoint that no other process can remove; see `HeldCheckpoint.load_model`."""
    with explain_unreadable(MODEL):
        file = (checkpoint.folder / MODEL).open("rb")
    with file:
        return read_model(file, checkpoint)


def model_bytes(model: Mapping[str, Tensor]) -> bytes:
    """A state dict in the safetensors format.

    A tensor with several names, such as a tied embedding, is written once; its other names are in the header.
    """
    first_name: dict[tuple[object, ...], str] = {}
    tensors: dict[str, Tensor] = {}
    other_names: dict[str, str] = {}
    for name, tensor in model.items():
        place = tensor.data_ptr() or name  # An empty tensor has no address.
        first = first_name.setdefault(
            (tensor.device, place, tensor.shape, tensor.stride(), tensor.dtype), name
        )
        if first == name:
            tensors[name] = tensor.detach().cpu().contiguous()
        else:
            other_names[name] = first
    # In one entry: the order of several entries, and so the bytes, would differ from process to process.
    return safetensors.torch.save(tensors, {"other_names": json.dumps(other_names, sort_keys=True)})


def read_model(file: BinaryIO, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The state dict that `model_bytes` wrote for this checkpoint, on the CPU.

    Args:
        file: The open file, which is read once: the bytes that are verified are the bytes that are parsed.
        checkpoint: The checkpoint that it belongs to.
    """
    with explain_unreadable(MODEL):
        file.seek(0)
        content = file.read()
    refuse_other_checksum(checkpoint, MODEL, content)
    return parse_model(content)


def parse_model(content: bytes) -> dict[str, Tensor]:
    """The state dict in the verified content of a model's file."""
    with _explain_malformed():
        other_names = _other_names(_header(io.BytesIO(content)))
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
        for name in tensors:
            # Into memory allocated by torch, which is aligned as its kernels need.
            tensors[name] = tensors[name].clone()
        tensors |= {name: tensors[first] for name, first in other_names.items()}
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise DamagedError(f"the weight {name} in {MODEL} contains NaN or infinite values")
    return tensors


def mean_of(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight (Vaswani et al. 2017, section 6.1), in the weight's own dtype.

    Args:
        models: Weights by name. They are read one after another, so that only two are in memory at a time.
    """
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    num_models = 0
    for weights in models:
        if not num_models:
            dtypes = {name: weight.dtype for name, weight in weights.items()}
            sums = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
        num_models += 1
        if {name: sum_.shape for name, sum_ in sums.items()} != {n: w.shape for n, w in weights.items()}:
            raise ValueError("their weights have other names or shapes")
        for name, weight in weights.items():
            sums[name] += weight
    if not num_models:
        raise ValueError("there are none")
    return {name: (sum_ / num_models).to(dtypes[name]) for name, sum_ in sums.items()}


def _header(file: BinaryIO) -> dict[str, Any]:
    """The header of a safetensors file: its length in 8 bytes, then JSON."""
    length = int.from_bytes(file.read(8), "little")
    if length > _MAX_HEADER_BYTES:
        raise ValueError("the header is too long")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise TypeError("the header is not a mapping")
    return header


def _other_names(header: Mapping[str, Any]) -> dict[str, str]:
    names: dict[str, str] = json.loads(header[_METADATA]["other_names"])
    return names


def _is_finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    # aminmax propagates NaN, and unlike isfinite().all() needs no second tensor of that size.
    return all(bound.isfinite() for bound in torch.aminmax(tensor))


@contextmanager
def _explain_malformed() -> Iterator[None]:
    try:
        yield
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{MODEL} is not a model written by mt") from error
