"""The training loop as it is usually written: forward, cross-entropy, backward, clip, Adam."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from scripts.benchmark.session import Job, TrainingSession
from scripts.benchmark.workload import BOS_ID, EOS_ID, PAD_ID, Integers

Pairs = list[tuple[Integers, Integers]]
LABEL_SMOOTHING = 0.1


@dataclass(frozen=True)
class PaddedBatch:
    """Sentence pairs as rectangles; ``src`` and ``labels`` end with EOS, ``tgt`` begins with BOS."""

    src: Tensor
    tgt: Tensor
    labels: Tensor
    num_tgt_tokens: int

    @classmethod
    def of(cls, pairs: Pairs, device: str) -> "PaddedBatch":
        def rectangle(rows: Iterable[list[int]]) -> Tensor:
            tensors = [torch.tensor(row) for row in rows]
            return pad_sequence(tensors, batch_first=True, padding_value=PAD_ID).to(device)

        return cls(
            src=rectangle([*src.tolist(), EOS_ID] for src, _ in pairs),
            tgt=rectangle([BOS_ID, *tgt.tolist()] for _, tgt in pairs),
            labels=rectangle([*tgt.tolist(), EOS_ID] for _, tgt in pairs),
            num_tgt_tokens=sum(len(tgt) + 1 for _, tgt in pairs),
        )


def train(
    model: nn.Module, logits_of: Callable[[PaddedBatch], Tensor], session: TrainingSession, job: Job
) -> None:
    """Train for ever, on the workload's batches in their order; ``logits_of`` is ``(B, T, V)``."""
    workload = job.workload
    first = PaddedBatch.of(workload.pairs_of_batch(0), job.device)
    model.eval()
    with torch.inference_mode():
        loss = mean_loss(logits_of(first), first)
    model.train()
    optimizer = plain_adam(model, job.device)
    session.ready(first_loss=float(loss))
    number = 0
    while True:
        batch = PaddedBatch.of(workload.pairs_of_batch(number), job.device)
        optimizer.zero_grad()
        with autocast(job):
            loss = mean_loss(logits_of(batch), batch)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        session.after_step(batch.num_tgt_tokens)
        number += 1


def plain_adam(model: nn.Module, device: str) -> torch.optim.Adam:
    """On CUDA the fused kernel, which is what one takes there; on a CPU what torch chooses by itself."""
    fused = True if device == "cuda" else None
    return torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=fused)


def autocast(job: Job) -> AbstractContextManager[Any]:
    """Mixed precision where the job asks for it."""
    return torch.autocast(job.device, dtype=torch.bfloat16) if job.precision == "bf16" else nullcontext()


def mean_loss(logits: Tensor, batch: PaddedBatch) -> Tensor:
    """Mean label-smoothed cross-entropy of the real tokens."""
    return F.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=PAD_ID, label_smoothing=LABEL_SMOOTHING
    )
