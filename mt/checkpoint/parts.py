"""The weights of a checkpoint, to bytes and back, as safetensors.

Nothing can be executed when they are read. What is read was verified before, which guards against
accidents; the checks here guard against someone who made the checksums fit.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from mt.checkpoint.format_1 import TRAINING_STATE
from mt.checkpoint.record import Checkpoint, DamagedError, explain_unreadable, refuse_other_checksum
from mt.checkpoint.training_state import TENSORS, VALUES

MODEL = "model.safetensors"
# As the format's own reader has it.
_MAX_HEADER_BYTES = 100_000_000
_METADATA = "__metadata__"


def parts_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The names of its files besides the record."""
    return (MODEL, *training_parts_of(checkpoint))


def training_parts_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """The files of its training state; an average has none."""
    if checkpoint.average_of:
        return ()
    return (TRAINING_STATE,) if checkpoint.format_version == 1 else (TENSORS, VALUES)


def model_bytes(model: Mapping[str, Tensor]) -> bytes:
    """A state dict in the safetensors format.

    A tensor that stands in it under several names, such as a tied embedding, is written once, and its other
    names into the header.

    Raises:
        RuntimeError: If two different tensors share memory, which the format does not know.
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
    # In one entry: the order of several would differ from process to process, and so would the bytes.
    return safetensors.torch.save(tensors, {"other_names": json.dumps(other_names, sort_keys=True)})


def read_model(file: BinaryIO, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The state dict that ``model_bytes`` wrote for this checkpoint, on the CPU.

    Args:
        file: The open file, which is read once: what is compared with the checksum is what is loaded.
        checkpoint: Whose weights they are.

    Raises:
        DamagedError: If it is not what was saved, no model, or has weights that are NaN or infinite.
    """
    with explain_unreadable(MODEL):
        file.seek(0)
        content = file.read()
    refuse_other_checksum(checkpoint, MODEL, hashlib.sha256(content).hexdigest())
    with _explain_forgery():
        other_names = _other_names(_header(io.BytesIO(content)))
        tensors: dict[str, Tensor] = safetensors.torch.load(content)
        del content
        for name in tensors:
            # Into memory of torch's own, which is aligned as its kernels want it.
            tensors[name] = tensors[name].clone()
        tensors |= {name: tensors[first] for name, first in other_names.items()}
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise DamagedError(f"the weight {name} in {MODEL} holds NaN or infinite values")
    return tensors


def model_shapes(file: BinaryIO) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor that ``model_bytes`` wrote, by its name, from the file's header alone.

    Raises:
        DamagedError: If there is no such header.
    """
    with explain_unreadable(MODEL), _explain_forgery():
        file.seek(0)
        header = _header(file)
        shapes = {
            name: tuple(map(int, entry["shape"])) for name, entry in header.items() if name != _METADATA
        }
        return shapes | {name: shapes[first] for name, first in _other_names(header).items()}


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
    # NaN is the smallest and the largest of all, and no copy of the tensor is made.
    return all(bound.isfinite() for bound in torch.aminmax(tensor))


@contextmanager
def _explain_forgery() -> Iterator[None]:
    try:
        yield
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{MODEL} is no model that mt wrote") from error
