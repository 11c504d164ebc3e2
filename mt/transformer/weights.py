"""Moves the weights of a model: into it, or as its own into one that was built without memory."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from mt.transformer.transformer import Transformer


def load_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Copy in weights returned by `Transformer.weights`."""
    check_shapes(model, weights)
    for name, weight in model.weights().items():
        weight.copy_(weights[name])


def adopt_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Use these tensors as the parameters, without a copy, in a model that was built without memory."""
    check_shapes(model, weights)
    new = {own: nn.Parameter(weights[name].to(own.dtype)) for name, own in model.named_parameters()}
    # Tied ones have several names here.
    named = model.named_parameters(remove_duplicate=False)
    model.load_state_dict({name: new[own] for name, own in named}, assign=True)


def check_shapes(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Check that the weights match those of the model, which may be without memory."""
    own = model.weights()
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())
        raise ValueError(f"these weights belong to another model: they differ in {', '.join(odd[:3])}")
    for name, weight in own.items():
        if weight.shape != weights[name].shape:
            shapes = tuple(weights[name].shape), tuple(weight.shape)
            raise ValueError(f"{name} has the shape {shapes[0]}, not {shapes[1]}")


@contextmanager
def without_memory() -> Iterator[None]:
    """Build modules on the meta device: their parameters have names and shapes, but no memory."""
    with torch.device("meta"), _NothingDrawn():
        yield


_DRAWING = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)


class _NothingDrawn(TorchFunctionMode):
    """Skips random initialisation, for which torch would import its compiler on the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``, unless it initialises at random, because that result is never used."""
        return None if func in _DRAWING else func(*args, **(kwargs or {}))
