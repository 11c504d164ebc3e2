"""Health metrics of a step: its padding, the norms of each layer, and how far it moved the weights."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mt.data.batches.batch import Batch
from mt.special_tokens import PAD_ID

# A layer of a stack, another part of a stack such as its final norm, or another part of the model.
_LAYER = re.compile(r"\w+\.layers\.\d+|(?:en|de)coder\.\w+|\w+")


@dataclass(frozen=True)
class Health:
    """Metrics of one step. Layers are named by their parameters, such as ``encoder.layers.0``."""

    padding_share: float
    """PAD tokens divided by all tokens, on both sides, including BOS and EOS, in the micro-batches of this
    process; the other metrics are those of the whole step."""
    update_ratio: float
    """Norm of the change of all weights divided by the norm of the weights; 0 if the step was skipped."""
    gradient_norms: dict[str, float]
    """Norm of the gradient of each layer, before clipping."""
    weight_norms: dict[str, float]
    """Norm of the weights of each layer, after the update."""


class Checkup:
    """Measures one step: create it before the gradient is clipped, call `finish` after the update.

    It only reads. It keeps a copy of the weights during the step, and waits for the device once.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, each) for name, each in model.named_parameters() if each.grad is not None]
        self._names = [name for name, _ in named]
        self._weights: list[Tensor] = [each.detach() for _, each in named]
        self._before = [weight.clone() for weight in self._weights]
        self._gradient_norms = torch._foreach_norm([each.grad for _, each in named if each.grad is not None])

    def finish(self, micro_batches: Sequence[Batch]) -> Health:
        """The metrics of the step, which was taken on ``micro_batches``."""
        torch._foreach_sub_(self._before, self._weights)
        norms = (
            *self._gradient_norms,
            *torch._foreach_norm(self._weights),
            *torch._foreach_norm(self._before),
        )
        # One transfer for all of them; not every device has doubles.
        gradient, weight, change = torch.stack(norms).cpu().double().view(3, -1).square()
        return Health(
            padding_share(micro_batches),
            float((change.sum() / weight.sum()).sqrt()),
            self._by_layer(gradient),
            self._by_layer(weight),
        )

    def _by_layer(self, squares: Tensor) -> dict[str, float]:
        """The norm of each layer, from the squared norm of each of its parameters."""
        sums: dict[str, float] = {}
        for name, square in zip(self._names, squares.tolist(), strict=True):
            layer = layer_of(name)
            sums[layer] = sums.get(layer, 0.0) + square
        return {layer: total**0.5 for layer, total in sums.items()}


def layer_of(parameter: str) -> str:
    """The layer of a parameter, by its name: ``encoder.layers.0``, ``decoder.norm`` or ``output``."""
    found = _LAYER.match(parameter)
    return found.group() if found else parameter


def padding_share(batches: Iterable[Batch]) -> float:
    """PAD tokens divided by all tokens of source and target; 0 for no batches."""
    num_positions, num_real = 0, 0
    for batch in batches:
        num_positions += batch.num_positions
        num_real += batch.num_target_tokens + int((batch.src_ids != PAD_ID).sum())
    return 1 - num_real / num_positions if num_positions else 0.0
