"""`mt check --batch`: recompute a batch whose loss or gradient was not finite, and find out where."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mt.checkpoint.directory import LATEST
from mt.checkpoint.store import CheckpointStore
from mt.data.batches.batch import collate
from mt.inference.loaded_model import load_model
from mt.run_directory import RunDirectory
from mt.training.bad_batches import BadBatch, read_bad_batch
from mt.training.loss import Objective


class PairLoss(NamedTuple):
    """One sentence pair of the batch as the model sees it, and its cross-entropy in nats per target token."""

    loss: float
    src: str
    tgt: str


@dataclass(frozen=True)
class Replay:
    """The result of recomputing the batch."""

    bad: BadBatch
    checkpoint: str
    loss: float
    """Label-smoothed, in nats per target token."""
    gradient_norm: float
    not_finite: dict[str, str]
    """The first weight, (module) output and gradient that are not finite, in the order of computation."""
    pairs: list[PairLoss]
    """Its sentence pairs, by descending loss."""

    @property
    def is_sound(self) -> bool:
        """Whether loss and gradient are finite."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def replay(run: RunDirectory, file: Path, *, checkpoint: str | None, device: torch.device) -> Replay:
    """Compute loss and gradient of the batch in ``file`` in float32, without dropout.

    The default of ``checkpoint`` is the newest before the skipped step, or the latest if that is gone.
    """
    store, bad = CheckpointStore(run.checkpoints_dir), read_bad_batch(file)
    before = bad.after_checkpoint if bad.after_checkpoint in store.names() else None
    trained = load_model(run, checkpoint or before or LATEST)
    tokenizers = trained.src_tokenizer, trained.tgt_tokenizer
    bad.check_vocabulary(file, tokenizers[0].size, tokenizers[1].size, trained.config.data.max_length)
    saved = trained.checkpoint
    if trained.config.training.ema_decay is not None and not saved.average_of:
        # The model is a moving average of the weights that took the step.
        trained.model.load_weights(store.load_training_state(saved).weights())
    not_finite: dict[str, str] = {}
    objective = Objective(trained.model).to(device).eval()
    batches = [collate(pairs.src_ids, pairs.tgt_ids).to(device) for pairs in bad.micro_batches]
    num_target_tokens = sum(batch.num_target_tokens for batch in batches)
    loss = 0.0
    with _watching(objective, not_finite):
        for batch in batches:
            smoothed = objective(batch, trained.config.training.label_smoothing) / num_target_tokens
            smoothed.backward()
            loss += float(smoothed.detach())
    gradients = [parameter.grad for parameter in objective.parameters() if parameter.grad is not None]
    pairs = []
    for micro_batch in bad.micro_batches:
        for src, tgt in zip(micro_batch.src_ids, micro_batch.tgt_ids, strict=True):
            alone = collate([src], [tgt]).to(device)
            with torch.inference_mode():
                pair_loss = float(objective(alone, 0.0)) / alone.num_target_tokens
            pairs.append(PairLoss(pair_loss, tokenizers[0].decode(src), tokenizers[1].decode(tgt)))
    pairs.sort(key=lambda pair: pair.loss if math.isfinite(pair.loss) else math.inf, reverse=True)
    norm = float(nn.utils.get_total_norm(gradients))
    return Replay(bad, trained.checkpoint.name, loss, norm, not_finite, pairs)


@contextmanager
def _watching(objective: Objective, not_finite: dict[str, str]) -> Iterator[None]:
    """Note the first weight, output and gradient that are not finite, in the order of computation."""

    def note(kind: str, name: str, value: Any) -> None:
        if kind not in not_finite and isinstance(value, Tensor) and not value.isfinite().all():
            not_finite[kind] = name.removeprefix("model.") or "the loss"

    def look_at_output(name: str, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        note("output", name, output)

    def look_at_gradient(name: str, parameter: Tensor) -> None:
        note("gradient", name, parameter.grad)

    with ExitStack() as hooks:
        for name, module in objective.named_modules():
            hooks.enter_context(module.register_forward_hook(partial(look_at_output, name)))
        for name, parameter in objective.named_parameters():
            note("weight", name, parameter)
            look = partial(look_at_gradient, name)
            hooks.enter_context(parameter.register_post_accumulate_grad_hook(look))  # type: ignore[no-untyped-call]
        yield
