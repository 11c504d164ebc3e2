"""`mt average`: the mean of several checkpoints of a run, as one to translate with."""

import logging

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.errors import CheckpointError
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)


def average_checkpoints(run: RunDirectory, number: int, *, best: bool) -> Checkpoint:
    """Average the last ``number`` checkpoints, or those with the best validation score; the new checkpoint.

    Raises:
        RunError: If there is no such run, or somebody trains in it, who would remove what is being read.
        CheckpointError: If there are not as many checkpoints that will do, or one is damaged.
    """
    run.require()
    store = CheckpointStore(run.checkpoints_dir)
    with run.lock():
        found = [store.require(name) for name in store.names()]
        what = "checkpoints"
        if best:
            metric = load_config(run.config_file).validation.metric
            what = f"checkpoints with a {metric} of their own"
            found = [checkpoint for checkpoint in found if metric in checkpoint.metrics]
            # Of a loss, less is better.
            sign = -1 if metric == "loss" else 1
            found.sort(key=lambda checkpoint: sign * checkpoint.metrics[metric])
        if len(found) < number:
            raise CheckpointError(
                f"{run.path} has {len(found)} {what}, and not {number}. Ask for fewer, or train with a "
                "greater checkpoint.keep."
            )
        chosen = sorted(found[-number:], key=lambda checkpoint: checkpoint.step)
        LOG.info("averaging %s", ", ".join(checkpoint.name for checkpoint in chosen))
        return store.save_average(chosen)
