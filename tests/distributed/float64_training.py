"""`mt train` in float64, recording each step: float64_training.py RECORDS train ..."""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from mt import processes
from mt.__main__ import main
from mt.data.batches.batch import Batch
from mt.data.batches.stream import BatchStream
from mt.training.train_state import TrainState

finish, batch_of = TrainState.finish, BatchStream.batch_of
records = Path(sys.argv.pop(1))
latest: list[tuple[int, list[int]]] = []


def recorded_step(self: TrainState, step: Any) -> Any:
    """Write loss, norm, and the pairs of this process's micro-batches."""
    result = finish(self, step)
    # Collated just before; without labels they are another process's.
    own = step.batches.micro_batches
    seen = [pairs for pairs, batch in zip(latest[-len(own) :], own, strict=True)
            if batch.num_target_tokens]  # fmt: skip
    latest.clear()
    line = {"step": step.counters.step, "loss": result.loss, "norm": result.gradient_norm, "pairs": seen}
    with records.with_suffix(f".{processes.RANK}").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return result


def recorded_batch(self: BatchStream, epoch: int, number: int) -> Batch:
    """Remember which pairs a batch has."""
    latest.append((epoch, self.epoch(epoch).batches[number].tolist()))
    return batch_of(self, epoch, number)


torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
TrainState.finish = recorded_step  # type: ignore[method-assign]
BatchStream.batch_of = recorded_batch  # type: ignore[method-assign]
main()
