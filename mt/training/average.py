"""Averages several checkpoints of a run into one to translate with."""

import logging
from pathlib import Path

from mt.checkpoint.directory import BEST
from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.display import counted
from mt.errors import CheckpointError
from mt.run_directory import RunDirectory, as_run
from mt.training.validation import deciding_metric

LOG = logging.getLogger(__name__)


def average_checkpoints(run: str | Path | RunDirectory, number: int = 5, *, best: bool = False) -> Checkpoint:
    """Average checkpoints into one, which is saved in the run under a name of its own.

    Args:
        run: The run directory.
        number: How many checkpoints; all if there are fewer.
        best: Whether to take those with the best validation scores instead of the last ones.

    Raises:
        MtError: If there are fewer than two, or one is damaged.
    """
    if number < 1:
        raise CheckpointError(f"cannot average {number} checkpoints: give a number from 1.")
    run = as_run(run).require()
    store, config = CheckpointStore(run.checkpoints_dir), load_config(run.config_file)
    with run.lock():
        store.tidy_up()
        names = store.names()
        if best:
            metric = deciding_metric(config.validation)
            # A lower loss is better.
            sign = -1 if metric == "loss" else 1
            scored = [checkpoint for checkpoint in map(store.require, names) if metric in checkpoint.metrics]
            chosen = sorted(scored, key=lambda checkpoint: sign * checkpoint.metrics[metric])[-number:]
        else:
            old = set(names[: -config.checkpoint.keep]) & {store.pointer(BEST)}
            # A damaged checkpoint that would not be averaged is not in the way.
            last = [name for name in names if name not in old][-number:]
            chosen = [store.require(name) for name in last]
        what = f"{run.path} has {counted(len(chosen), 'checkpoint')} to average"
        if len(chosen) < min(number, 2):
            raise CheckpointError(
                f"{what}, but 2 or more are needed. Train it further, or with a larger checkpoint.keep."
            )
        if len(chosen) < number:
            LOG.warning("%s instead of %d. checkpoint.keep sets how many are kept.", what, number)
        chosen.sort(key=lambda checkpoint: checkpoint.step)
        LOG.info("averaging %s", ", ".join(checkpoint.name for checkpoint in chosen))
        return store.save_average(chosen)
