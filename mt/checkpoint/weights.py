"""The weights of a checkpoint: written and read as safetensors, and averaged.

Reading executes nothing. The values are checked here, names and shapes when they are put into a model.
"""

from collections.abc import Iterable, Mapping

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from mt.checkpoint.record import MODEL, DamagedError


def model_bytes(model: Mapping[str, Tensor]) -> bytes:
    """Weights in the safetensors format, each under one name."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.items()}
    return safetensors.torch.save(tensors, {"other_names": "{}"})


def parse_model(content: bytes) -> dict[str, Tensor]:
    """The weights in the verified output of `model_bytes`, on the CPU."""
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
