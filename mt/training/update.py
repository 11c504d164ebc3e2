"""One optimizer step: the gradient of its batches, and the update of the weights by it."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from mt.data.batches.batch import Batch
from mt.device import Precision


def add_gradients(
    objective: nn.Module, batches: Iterable[Batch], smoothing: float, num_tokens: float, precision: Precision
) -> Tensor:
    """Add the gradient of the mean loss per target token to each ``parameter.grad``; return that loss ``()``.

    ``objective`` maps a batch to its summed loss. The sum is divided by the ``num_tokens`` of the whole step,
    so that several small batches give the gradient of the one batch that they make up.
    """
    total = torch.zeros((), device=next(objective.parameters()).device)
    for batch in batches:
        with precision.autocast():
            loss: Tensor = objective(batch, smoothing) / num_tokens
        precision.backward(loss)
        total += loss.detach()
    return total


def update_weights(
    optimizers: Sequence[torch.optim.Optimizer],
    loss: Tensor,
    *,
    learning_rate: float,
    clip_norm: float | None,
    precision: Precision,
) -> Tensor:
    """Change the weights by their gradients, unless these or the loss are not finite.

    A gradient whose norm is above ``clip_norm`` is shortened to it (Pascanu et al. 2013). Returns the norm of
    the whole gradient before that, ``()``.
    """
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    parameters = [parameter for group in groups for parameter in group["params"]]
    # In fp16, gradients carry the scale of the loss, which is removed before their norm is measured.
    precision.unscale(optimizers)
    norm = clip_grad_norm_(parameters, clip_norm or math.inf)
    for group in groups:
        group["lr"] = learning_rate
    is_finite = loss.isfinite() & norm.to(loss.device).isfinite()
    # On CUDA always: there this tells the optimizers, which then change nothing if it is not finite.
    if precision.allow_update(optimizers, is_finite):
        for optimizer in optimizers:
            optimizer.step()
    return norm
