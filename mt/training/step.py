"""What surrounds the gradient of an optimizer step: processes, memory that runs out, and its report."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mt import distributed, processes
from mt.data.batches.batch import Batch
from mt.data.batches.stream import StepBatches
from mt.device import DeferredRead, Precision
from mt.errors import RunError
from mt.memory import is_out_of_memory, split_on_out_of_memory
from mt.seeding import seed_device
from mt.training.counters import Counters, CurvePoint
from mt.training.update import add_gradients

LOG = logging.getLogger(__name__)

# A batch that is less than this share smaller than one that ran out of memory is split at once: finding out
# costs a step.
_MARGIN = 1 / 8


@dataclass(frozen=True, kw_only=True)
class LaunchedStep:
    """A step whose metrics the host has not read yet; the device may still be computing it."""

    batches: StepBatches
    learning_rate: float
    counters: Counters
    """As they were after this step."""
    metrics: DeferredRead = field(repr=False)
    """The summed loss per token and the stop requests of all processes, the norm, and the scale of fp16."""


@dataclass(frozen=True, kw_only=True)
class StepResult(LaunchedStep):
    """A step whose metrics have been read."""

    loss: float
    """Label-smoothed loss, in nats per real target token."""
    gradient_norm: float
    """Norm of the whole gradient before clipping."""
    updated: bool
    """False if the loss or the gradient was not finite: then no parameter was changed."""
    scale_too_large: bool = False
    """Whether the only reason was the fp16 loss scale, which has been lowered."""
    stop_requested: bool = False
    """Whether any process was asked to stop before the end of the step."""
    point: CurvePoint | None = None
    """The point of the training curve that ends with this step."""


def accumulate_gradients(
    objective: nn.Module,
    micro_batches: Sequence[Batch],
    num_target_tokens: int,
    precision: Precision,
    smoothing: float,
    positions_too_large: int | None,
) -> tuple[Tensor, int | None]:
    """Leave the gradient of the whole step in the parameters; return this process's share of its loss ``()``.

    If a batch runs out of memory, all start over, with batches of its size split in halves, whose dropout
    masks are others, but always the same ones. Also returns the positions of the smallest batch that ran out
    of memory.
    """
    device = next(objective.parameters()).device
    # The gradient exchange computes the mean.
    num_tokens_each = num_target_tokens / processes.SIZE
    latest = micro_batches[0]

    def parts(positions_too_large: int | None) -> Iterator[Batch]:
        """The batches in turn, each within the context in which its gradient is computed."""
        nonlocal latest
        for micro_batch in micro_batches:
            if micro_batch.dropout_seed is not None:
                seed_device(micro_batch.dropout_seed, device)
            halves = _split(micro_batch, positions_too_large)
            for latest in halves:
                is_last = micro_batch is micro_batches[-1] and latest is halves[-1]
                with nullcontext() if is_last else distributed.no_sync(objective):
                    yield _on_device(latest, device)

    def accumulate(positions_too_large: int | None) -> tuple[Tensor, int | None]:
        objective.zero_grad()
        batches = parts(positions_too_large)
        return add_gradients(objective, batches, smoothing, num_tokens_each, precision), positions_too_large

    def lower_bound(_: int | None) -> list[int | None]:
        report_too_large(latest, can_split=not processes.ARE_SEVERAL)
        return [latest.num_positions]

    [result] = split_on_out_of_memory(accumulate, positions_too_large, lower_bound)
    return result


def _on_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on the device, for CUDA through pinned memory, so that copying overlaps with computing."""
    is_elsewhere = batch.labels.device.type != device.type
    return (batch.pin_memory() if device.type == "cuda" and is_elsewhere else batch).to(device)


def _split(batch: Batch, positions_too_large: int | None) -> list[Batch]:
    """The batch, halved until each part is clearly smaller than the bound, or a single pair."""
    limit = math.inf if positions_too_large is None else (1 - _MARGIN) * positions_too_large
    if batch.num_positions < limit or len(batch.labels) == 1:
        return [batch]
    return [part for half in batch.halves() for part in _split(half, positions_too_large)]


def report_too_large(batch: Batch, *, can_split: bool) -> None:
    """Say what to change where a batch does not fit into memory, as an error if it cannot be split."""
    rows, length = batch.labels.shape
    pairs = "a single pair" if rows == 1 else f"a batch of {rows} pairs"
    what = f"{pairs} of {batch.src_ids.size(1)} source and {length} target tokens"
    remedy = (
        "In the next run, lower training.batch_tokens and raise training.num_micro_batches; or, if it is a "
        "single pair, lower data.max_length, or make the model smaller."
    )
    if rows == 1 or not can_split:
        raise RunError(f"{what} does not fit into memory. {remedy}")
    LOG.warning("out of memory: %s was split in two, which takes time. %s", what, remedy)


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Explain what can be made smaller if splitting batches does not help."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise RunError(
            "the model and its optimizer do not fit into memory. Lower model.d_model, model.d_ff, "
            "tokenizer.max_size or data.max_length."
        ) from error
