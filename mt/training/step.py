"""One optimizer step over one or more micro-batches."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from mt.data.batch import Batch
from mt.device import is_out_of_memory
from mt.errors import TrainingError
from mt.seeding import random_state, restore_random_state
from mt.training.objective import Objective
from mt.training.precision import Precision

LOG = logging.getLogger(__name__)


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
    gradient of the one batch that they make up. One that does not fit into memory is split.

    Raises:
        TrainingError: If a single sentence pair does not fit.
    """
    num_target_tokens = sum(batch.num_target_tokens for batch in micro_batches)
    loss = _accumulate(objective, micro_batches, optimizer, precision, smoothing, num_target_tokens)
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
    return StepResult(loss, num_target_tokens, norm, updated, scale_too_large)


def _accumulate(
    objective: Objective,
    micro_batches: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    smoothing: float,
    num_target_tokens: int,
) -> float:
    """Leave the gradient of all micro-batches in the parameters; return the loss per token.

    Where one does not fit into memory, all begins anew with that one in two halves: a backward pass that
    broke off has left a part of its gradient behind, which only starting from nothing takes away. Without
    dropout the gradient is that of the whole, to rounding. With it, the halves draw other masks than the
    whole would have, but always the same ones: those that follow from the random state before the step.
    """
    batches = list(micro_batches)
    before = random_state()
    while True:
        optimizer.zero_grad()
        loss = torch.zeros((), device=batches[0].labels.device)
        for number, batch in enumerate(batches):
            batch_loss = _backward(objective, batch, precision, smoothing, num_target_tokens)
            if batch_loss is None:
                batches[number : number + 1] = _split(batch)
                restore_random_state(before)
                break
            loss += batch_loss
        else:
            return float(loss)


def _backward(
    objective: Objective, batch: Batch, precision: Precision, smoothing: float, num_target_tokens: int
) -> Tensor | None:
    """Add the gradient of one micro-batch; its loss, or None if it does not fit into memory."""
    try:
        with precision.autocast():
            loss: Tensor = objective(batch, smoothing) / num_target_tokens
        precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        return loss.detach()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        # Returned, not raised again: an error holds on to the tensors of the frames that it went through.
        return None


def _split(batch: Batch) -> tuple[Batch, Batch]:
    rows, (src_length, tgt_length) = len(batch.labels), (batch.src_ids.size(1), batch.labels.size(1))
    if rows == 1:
        raise TrainingError(
            f"a single sentence pair of {src_length} source and {tgt_length} target tokens does not fit into "
            "memory. Lower data.max_length, or make the model smaller."
        )
    LOG.warning(
        "out of memory: a batch of %d pairs, %d source and %d target tokens long, was split in two, which "
        "takes time. In the next run lower training.batch_tokens and raise training.num_micro_batches.",
        rows,
        src_length,
        tgt_length,
    )
    return batch.halves()
