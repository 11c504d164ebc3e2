"""Batches whose loss or gradient was not finite, saved as plain JSON."""

import json
import logging
from itertools import chain, zip_longest

from mt import distributed, processes
from mt.files import make_folder, write_atomically
from mt.run_directory import RunDirectory
from mt.training.step import StepResult

LOG = logging.getLogger(__name__)
# A few are enough to find a fault; a run that fails again and again must not fill the disk.
MOST_KEPT = 100


def keep_bad_batch(run: RunDirectory, result: StepResult, after_checkpoint: str | None) -> None:
    """Write the ids of a step, on all processes, and its newest checkpoint into the run directory."""
    own = [batch for batch in result.batches.micro_batches if batch.num_target_tokens]
    shares = distributed.all_gather(own)
    step = result.counters.step
    file = run.path / "bad_batches" / f"step_{step:07d}.json"
    if not processes.IS_FIRST:
        return
    make_folder(file.parent)
    if not file.exists() and sum(1 for _ in file.parent.iterdir()) >= MOST_KEPT:
        LOG.warning("%s is full: the batch of step %d is not saved", file.parent, step)
        return
    pairs = (batch.sentences() for batch in chain.from_iterable(zip_longest(*shares)) if batch is not None)
    bad = {
        "step": step,
        "after_checkpoint": after_checkpoint,
        # As text, because JSON has no NaN.
        "loss": str(result.loss),
        "gradient_norm": str(result.gradient_norm),
        "micro_batches": [{"src_ids": src_ids, "tgt_ids": tgt_ids} for src_ids, tgt_ids in pairs],
    }
    write_atomically(file, json.dumps(bad) + "\n")
    LOG.warning("the batch of step %d is saved in %s", step, file)
