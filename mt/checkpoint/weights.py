"""The tensors of a checkpoint: written and read as safetensors, which executes nothing, and averaged."""

from collections.abc import Iterable, Mapping

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from mt.checkpoint.record import MODEL, DamagedError

WEIGHTS_METADATA = {"other_names": "{}"}
"""Each weight is under one name."""


def tensors_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """Tensors in the safetensors format."""
    ours = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(ours, metadata)


def parse_model(content: bytes) -> dict[str, Tensor]:
    """The weights in the verified output of `tensors_bytes`, on the CPU, all of them finite."""
    try:
        # Into memory allocated by torch, which is aligned as its kernels need.
        tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    except (SafetensorError, ValueError) as error:
        raise DamagedError(f"{MODEL} is not a model written by mt") from error
    for name, tensor in tensors.items():
        # aminmax propagates NaN, and unlike isfinite().all() needs no second tensor of that size.
        has_values = tensor.is_floating_point() and tensor.numel()
        if has_values and not all(bound.isfinite() for bound in torch.aminmax(tensor)):
            raise DamagedError(f"the weight {name} in {MODEL} contains NaN or infinite values")
    return tensors


def mean_of(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight (Vaswani et al. 2017, section 6.1), in the weight's own dtype."""
    sums: dict[str, Tensor] = {}
    number = 0
    for weights in models:
        number += 1
        for name, weight in weights.items():
            sums[name] = sums.get(name, 0) + weight.double()
    return {name: (total / number).to(weights[name].dtype) for name, total in sums.items()}
