"""The weights of a checkpoint, to bytes and back, as safetensors.

Nothing can be executed when they are read. What is read was verified before, which guards against
accidents; the checks here guard against someone who made the checksums fit.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mt.checkpoint.record import DamagedError

MODEL = "model.safetensors"


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
