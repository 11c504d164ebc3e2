"""`mt check --batch`: recompute a batch whose loss or gradient was not finite, and find out where."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mt.checkpoint.directory import LATEST
from mt.checkpoint.store import CheckpointStore
from mt.data.batches.batch import collate
from mt.device import is_out_of_memory
from mt.errors import CheckpointError, TrainingError
from mt.inference.loaded_model import LoadedModel, load_model
from mt.run_directory import RunDirectory
from mt.training.bad_batches import BadBatch, read_bad_batch
from mt.training.loss import Objective


@dataclass(frozen=True)
class PairLoss:
    """One sentence pair of the batch, as the model sees it."""

    loss: float
    """Cross-entropy, in nats per target token."""
    src: str
    tgt: str


@dataclass
class Watch:
    """Names of the first values that are not finite, in the order of computation."""

    output: str | None = None
    """The innermost module with such an output."""
    gradient: str | None = None
    """The parameter with such a gradient."""


@dataclass(frozen=True)
class Replay:
    """The result of recomputing the batch."""

    bad: BadBatch
    checkpoint: str
    loss: float
    """Label-smoothed, in nats per target token."""
    gradient_norm: float
    first_bad_weight: str | None
    first_bad_output: str | None
    first_bad_gradient: str | None
    pairs: list[PairLoss] = field(repr=False)
    """Its sentence pairs, by descending loss."""

    @property
    def is_sound(self) -> bool:
        """Whether loss and gradient are finite."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def replay(run: RunDirectory, file: Path, *, checkpoint: str | None, device: torch.device) -> Replay:
    """Compute loss and gradient of the batch in ``file`` in float32, without dropout.

    Args:
        run: The run that the batch is from.
        file: A file in its folder ``bad_batches``.
        checkpoint: The checkpoint with the weights: best, latest, or a name. None is the newest one before
            the skipped step, or the latest if training has removed it.
        device: Where to compute.
    """
    store = CheckpointStore(run.checkpoints_dir)
    trained = load_model(run, checkpoint or LATEST)
    src_tokenizer, tgt_tokenizer, config = trained.src_tokenizer, trained.tgt_tokenizer, trained.config
    bad = read_bad_batch(
        file,
        src_vocab_size=src_tokenizer.size,
        tgt_vocab_size=tgt_tokenizer.size,
        max_length=config.data.max_length,
    )
    if checkpoint is None and bad.after_checkpoint in store.names():
        trained = load_model(run, bad.after_checkpoint)
    _take_weights_of_the_step(trained, store)
    with _explain_batch_too_large(bad, device):
        objective = Objective(trained.model).to(device).eval()
        batches = [collate(pairs.src_ids, pairs.tgt_ids).to(device) for pairs in bad.micro_batches]
        num_target_tokens = sum(batch.num_target_tokens for batch in batches)
        loss = 0.0
        with _watching(objective) as watch:
            for batch in batches:
                batch_loss: Tensor = objective(batch, config.training.label_smoothing) / num_target_tokens
                batch_loss.backward()  # type: ignore[no-untyped-call]
                loss += float(batch_loss.detach())
        gradients = [parameter.grad for parameter in objective.parameters() if parameter.grad is not None]
        pairs = [
            PairLoss(_loss(objective, src, tgt, device), src_tokenizer.decode(src), tgt_tokenizer.decode(tgt))
            for micro_batch in bad.micro_batches
            for src, tgt in zip(micro_batch.src_ids, micro_batch.tgt_ids, strict=True)
        ]
    return Replay(
        bad,
        trained.checkpoint.name,
        loss,
        float(nn.utils.get_total_norm(gradients)),
        next((key for key, weight in trained.model.weights().items() if not _is_finite(weight)), None),
        watch.output,
        watch.gradient,
        sorted(pairs, key=lambda pair: -pair.loss if math.isfinite(pair.loss) else -math.inf),
    )


def _take_weights_of_the_step(trained: LoadedModel, store: CheckpointStore) -> None:
    """Take the trained weights from the training state if the model is a moving average of them."""
    saved = trained.checkpoint
    if trained.config.training.ema_decay is not None and not saved.average_of:
        try:
            trained.model.load_weights(store.load_training_state(saved).weights())
        except ValueError as error:
            raise CheckpointError(
                f"The training state of {saved.folder} belongs to another model: {error}."
            ) from error


@contextmanager
def _explain_batch_too_large(bad: BadBatch, device: torch.device) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        otherwise = "" if device.type == "cpu" else " Or compute on the CPU with --device cpu."
        raise TrainingError(
            f"the batch of step {bad.step:,} does not fit, in float32 and unsplit, into the free memory of "
            f"the device ({device.type}). Try again when no other program, such as the training, uses it."
            f"{otherwise}"
        ) from error


@torch.inference_mode()
def _loss(objective: Objective, src: list[int], tgt: list[int], device: torch.device) -> float:
    return float(objective(collate([src], [tgt]).to(device), 0.0)) / (len(tgt) + 1)


@contextmanager
def _watching(objective: Objective) -> Iterator[Watch]:
    """Find the first value that is not finite, in the forward and in the backward pass."""
    watch = Watch()

    def watch_module(name: str, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def look(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if watch.output is None and isinstance(output, Tensor) and not _is_finite(output):
                watch.output = name.removeprefix("model.") or "the loss"

        return module.register_forward_hook(look)

    def watch_parameter(name: str, parameter: nn.Parameter) -> torch.utils.hooks.RemovableHandle:
        def look(parameter: Tensor) -> None:
            if watch.gradient is None and parameter.grad is not None and not _is_finite(parameter.grad):
                watch.gradient = name.removeprefix("model.")

        handle: torch.utils.hooks.RemovableHandle = parameter.register_post_accumulate_grad_hook(look)  # type: ignore[no-untyped-call]
        return handle

    # A module finishes after its submodules, so that the first one seen is the innermost.
    handles = [watch_module(*named) for named in objective.named_modules()]
    handles += [watch_parameter(*named) for named in objective.named_parameters()]
    try:
        yield watch
    finally:
        for handle in handles:
            handle.remove()


def _is_finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())
