"""The weights of a checkpoint: written and read as safetensors, and averaged.

Reading executes nothing. The values are checked here, names and shapes when they are put into a model.
"""

import json
from collections.abc import Iterable, Mapping

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from mt.checkpoint.record import MODEL, DamagedError


def model_bytes(model: Mapping[str, Tensor]) -> bytes:
    """A state dict in the safetensors format.

    A tensor with several names, such as a tied embedding, is written once; its other names are in the header.
    """
    first_name: dict[tuple[object, ...], str] = {}
    tensors: dict[str, Tensor] = {}
    other_names: dict[str, str] = {}
    for name, tensor in model.items():
        address = tensor.data_ptr() or name  # An empty tensor has no address.
        storage = tensor.device, address, tensor.shape, tensor.stride(), tensor.dtype
        first = first_name.setdefault(storage, name)
        if first == name:
            tensors[name] = tensor.detach().cpu().contiguous()
        else:
            other_names[name] = first
    # In one entry: the order of several entries, and so the bytes, would differ from process to process.
    return safetensors.torch.save(tensors, {"other_names": json.dumps(other_names, sort_keys=True)})


def parse_model(content: bytes) -> dict[str, Tensor]:
    """The state dict in the verified output of `model_bytes`, on the CPU."""
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        # Into memory allocated by torch, which is aligned as its kernels need.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
        other_names: dict[str, str] = json.loads(header["__metadata__"]["other_names"])
        tensors |= {name: tensors[first] for name, first in other_names.items()}
    except (SafetensorError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{MODEL} is not a model written by mt") from error
    for name, tensor in tensors.items():
        # aminmax propagates NaN, and unlike isfinite().all() needs no second tensor of that size.
        has_values = tensor.is_floating_point() and tensor.numel()
        if has_values and not all(bound.isfinite() for bound in torch.aminmax(tensor)):
            raise DamagedError(f"the weight {name} in {MODEL} contains NaN or infinite values")
    return tensors


def mean_of(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight (Vaswani et al. 2017, section 6.1), in the weight's own dtype.

    The models are read one after another, so that only two are in memory at a time.
    """
    sums: dict[str, Tensor] = {}
    num_models = 0
    for num_models, weights in enumerate(models, 1):
        if num_models == 1:
            sums = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
        for name, weight in weights.items():
            sums[name] += weight
    return {name: (total / num_models).to(weights[name].dtype) for name, total in sums.items()}
