"""The two large parts of a checkpoint, to bytes and back: weights as safetensors, the rest as torch's zip.

Neither can execute anything when it is read. What is read was verified before, which guards against
accidents; the checks here guard against someone who made the checksums fit.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mt.checkpoint.record import DamagedError

MODEL, TRAINING_STATE = "model.safetensors", "training_state.pt"


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


def read_model(path: Path) -> dict[str, Tensor]:
    """The state dict that ``model_bytes`` wrote, on the CPU.

    Raises:
        DamagedError: If the file holds no such thing.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            other_names = json.loads((file.metadata() or {})["other_names"])
        return tensors | {name: tensors[first] for name, first in other_names.items()}
    except (
        OSError,
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise DamagedError(f"{path.name} is no model that mt wrote") from error


def training_state_bytes(state: Mapping[str, object]) -> memoryview:
    """``state`` in the format of ``torch.save``.

    Raises:
        TypeError: If it holds more than tensors and plain types, and so could not be loaded again safely.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    buffer.seek(0)
    foreign = torch.serialization.get_unsafe_globals_in_checkpoint(buffer)
    if foreign:
        raise TypeError(f"a training state holds tensors and plain types only, not {', '.join(foreign)}")
    return buffer.getbuffer()


def read_training_state(path: Path) -> dict[str, Any]:
    """What ``training_state_bytes`` wrote, with all tensors on the CPU.

    Raises:
        DamagedError: If the file holds anything else, which is then not executed.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            # torch does not compress, so a file that grows when it is read is not one of ours, but a bomb.
            unpacked_bytes = sum(entry.file_size for entry in archive.infolist())
        if unpacked_bytes > path.stat().st_size:
            raise DamagedError(f"{path.name} is compressed, as mt never writes it")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except DamagedError:
        raise
    except Exception as error:  # A pickle made to do harm can make the reader fail in any way.
        raise DamagedError(
            f"{path.name} holds other things than tensors and plain values, and was not opened"
        ) from error
    if not isinstance(state, dict):
        raise DamagedError(f"{path.name} is no training state that mt wrote")
    return state
