"""`mt train` in float64, which records what each step did: python float64_training.py RECORDS train ..."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mt import processes
from mt.__main__ import main
from mt.data.batches.batch import Batch
from mt.data.batches.stream import BatchStream
from mt.training.step import StepResult
from mt.training.train_state import TrainState

step, batch_of = TrainState.step, BatchStream.batch_of
records = Path(sys.argv.pop(1))
latest: list[tuple[int, list[int]]] = []


def recorded_step(self: TrainState, micro_batches: Sequence[Batch], *rest: Any, **more: Any) -> StepResult:
    """Write loss, norm, and the pairs of this process's micro-batches."""
    result = step(self, micro_batches, *rest, **more)
    # Collated just before; without labels they are another process's.
    seen = [pairs for pairs, batch in zip(latest[-len(micro_batches) :], micro_batches, strict=True)
            if batch.num_target_tokens]  # fmt: skip
    latest.clear()
    line = {"step": self.counters.step, "loss": result.loss, "norm": result.gradient_norm, "pairs": seen}
    with records.with_suffix(f".{processes.rank()}").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return result


def recorded_batch(self: BatchStream, indices: Any, epoch: int, generator: np.random.Generator) -> Batch:
    """Remember which pairs a batch has."""
    latest.append((epoch, indices.tolist()))
    return batch_of(self, indices, epoch, generator)


torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
TrainState.step = recorded_step  # type: ignore[method-assign]
BatchStream.batch_of = recorded_batch  # type: ignore[method-assign]
main()
