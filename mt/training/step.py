"""One optimizer step over one or more micro-batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from mt.data.batch import Batch
from mt.training.objective import Objective
from mt.training.precision import Precision


@dataclass(frozen=True)
class StepResult:
    """What one step did."""

    loss: float
    """Label-smoothed loss, in nats per real target token."""
    num_target_tokens: int
    gradient_norm: float
    """Norm of the whole gradient before clipping."""
    updated: bool
    """False where the gradient was no number, and so never reached the parameters."""


def train_step(
    objective: Objective,
    micro_batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    *,
    learning_rate: float,
    smoothing: float,
    clip_norm: float | None,
) -> StepResult:
    """Accumulate the gradients of the micro-batches and update the parameters once.

    The loss of each is divided by the real target tokens of all, so that k micro-batches have the
    gradient of the one batch that they make up.
    """
    num_target_tokens = sum(batch.num_target_tokens for batch in micro_batches)
    optimizer.zero_grad()
    loss = torch.zeros((), device=micro_batches[0].labels.device)
    for batch in micro_batches:
        with precision.autocast():
            batch_loss: Tensor = objective(batch, smoothing) / num_target_tokens
        precision.scaler.scale(batch_loss).backward()  # type: ignore[no-untyped-call]
        loss += batch_loss.detach()
    # Before clipping: the scaled gradient has a norm that means nothing.
    precision.scaler.unscale_(optimizer)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = float(clip_grad_norm_(parameters, math.inf if clip_norm is None else clip_norm))
    updated = math.isfinite(norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    if updated or precision.scaler.is_enabled():
        # The fp16 scaler sees for itself that a gradient is no number, and lowers its scale.
        precision.scaler.step(optimizer)
        precision.scaler.update()
    return StepResult(float(loss), num_target_tokens, norm, updated)
