"""One optimizer step over one or more micro-batches."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from mt.data.batches.batch import Batch
from mt.device import unless_out_of_memory
from mt.errors import TrainingError
from mt.seeding import seed_device
from mt.training.loss import Objective
from mt.training.precision import Precision

LOG = logging.getLogger(__name__)

# A batch that is smaller than one that did not fit by less than this share would mostly not fit either, and
# finding that out costs a step; halving one that would have fitted costs little.
_MARGIN = 1 / 8


@dataclass(frozen=True)
class StepResult:
    """What one step did."""

    loss: float
    """Label-smoothed loss, in nats per real target token."""
    num_target_tokens: int
    gradient_norm: float
    """Norm of the whole gradient before clipping."""
    updated: bool
    """False where loss or gradient was no number, and so never reached the parameters."""
    scale_too_large: bool = False
    """Whether that was only the fp16 scale's doing, which has been lowered."""
    positions_too_large: int | None = None
    """Positions of the smallest batch so far that did not fit into memory."""


def train_step(
    objective: Objective,
    micro_batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    *,
    learning_rate: float,
    smoothing: float,
    clip_norm: float | None,
    positions_too_large: int | None = None,
) -> StepResult:
    """Accumulate the gradients of the micro-batches and update the parameters once.

    The loss of each is divided by the real target tokens of all, so that k micro-batches have the
    gradient of the one batch that they make up. One that does not fit into memory is split, and from then on
    any of about that size, if ``positions_too_large`` of the result is given to the next step.

    Args:
        objective: The model with its loss, on the device to compute on.
        micro_batches: Wherever they are.
        optimizer: Of the objective's parameters.
        precision: The numbers to compute in.
        learning_rate: Of this step.
        smoothing: Of the labels.
        clip_norm: The largest norm of the gradient, None for any.
        positions_too_large: Positions (`Batch.num_positions`) of the smallest batch that did not fit before.

    Raises:
        TrainingError: If a single sentence pair does not fit.
    """
    num_target_tokens = sum(batch.num_target_tokens for batch in micro_batches)
    loss, positions_too_large = _accumulate(
        objective, micro_batches, optimizer, precision, smoothing, num_target_tokens, positions_too_large
    )
    # Before clipping: the scaled gradient has a norm that means nothing.
    precision.scaler.unscale_(optimizer)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = float(clip_grad_norm_(parameters, math.inf if clip_norm is None else clip_norm))
    updated = math.isfinite(norm) and math.isfinite(loss)
    # At a scale of 1 or less, what is no number is so by itself.
    scale_too_large = not updated and math.isfinite(loss) and precision.scaler.get_scale() > 1
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    if updated:
        precision.scaler.step(optimizer)
    # The fp16 scaler has seen for itself whether the gradient is a number, and lowers its scale if not.
    precision.scaler.update()
    return StepResult(loss, num_target_tokens, norm, updated, scale_too_large, positions_too_large)


def _accumulate(
    objective: Objective,
    micro_batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    smoothing: float,
    num_target_tokens: int,
    positions_too_large: int | None,
) -> tuple[float, int | None]:
    """Leave the gradient of all micro-batches in the parameters.

    Where a batch does not fit into memory, all starts over with those of its size in halves: a backward pass
    that broke off has left a part of its gradient behind, which only starting from nothing takes away.
    Without dropout the gradient is that of the whole, to rounding. With it, the parts draw other masks than
    the whole would have, but always the same ones: those that follow from the seed of the micro-batch.

    Returns:
        The loss per token, and the positions of the smallest batch so far that did not fit.
    """
    device = next(objective.parameters()).device

    def backward(batch: Batch) -> Tensor:
        there = _on_device(batch, device)
        with precision.autocast():
            loss: Tensor = objective(there, smoothing) / num_target_tokens
        precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    while True:
        optimizer.zero_grad()
        outcome = _pass_over(micro_batches, backward, device, positions_too_large)
        if isinstance(outcome, Tensor):
            return float(outcome), positions_too_large
        _refuse_single_pair(outcome)
        positions_too_large = outcome.num_positions


def _pass_over(
    micro_batches: Sequence[Batch],
    backward: Callable[[Batch], Tensor],
    device: torch.device,
    positions_too_large: int | None,
) -> Tensor | Batch:
    """Add the gradient of each; the sum of what `backward` gives, or the first batch that does not fit."""
    total = torch.zeros((), device=device)
    for micro_batch in micro_batches:
        if micro_batch.dropout_seed is not None:
            seed_device(micro_batch.dropout_seed, device)
        for batch in _parts(micro_batch, positions_too_large):
            loss = unless_out_of_memory(partial(backward, batch))
            if loss is None:
                return batch
            total += loss
    return total


def _on_device(batch: Batch, device: torch.device) -> Batch:
    """Through page-locked memory, where that is CUDA, so that copying runs beside computing."""
    is_elsewhere = batch.labels.device.type != device.type
    return (batch.pin_memory() if device.type == "cuda" and is_elsewhere else batch).to(device)


def _parts(batch: Batch, positions_too_large: int | None) -> list[Batch]:
    """The batch, halved until each part is clearly smaller than what did not fit, or a single pair."""
    if (
        positions_too_large is None
        or batch.num_positions < (1 - _MARGIN) * positions_too_large
        or len(batch.labels) == 1
    ):
        return [batch]
    return [part for half in batch.halves() for part in _parts(half, positions_too_large)]


def _refuse_single_pair(batch: Batch) -> None:
    rows, (src_length, tgt_length) = len(batch.labels), (batch.src_ids.size(1), batch.labels.size(1))
    if rows == 1:
        raise TrainingError(
            f"a single sentence pair of {src_length} source and {tgt_length} target tokens does not fit into "
            "memory. Lower data.max_length, or make the model smaller."
        )
    LOG.warning(
        "out of memory: a batch of %d pairs, %d source and %d target tokens long, was split in two, and so "
        "is from now on each that is about as large, which takes time. In the next run lower "
        "training.batch_tokens and raise training.num_micro_batches.",
        rows,
        src_length,
        tgt_length,
    )
