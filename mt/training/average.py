"""Averages several checkpoints of a run into one to translate with."""

import logging

from mt.checkpoint.directory import BEST
from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.display import counted
from mt.errors import CheckpointError
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)


def average_checkpoints(run: RunDirectory, number: int, *, best: bool) -> Checkpoint:
    """Average the last ``number`` checkpoints, or the ``number`` best ones; return the new checkpoint.

    If there are fewer, all of them are averaged. An older checkpoint that is only kept because it is the best
    is not one of the last.
    """
    run.require()
    store = CheckpointStore(run.checkpoints_dir)
    with run.lock():
        store.tidy_up()
        names, config, what = store.names(), load_config(run.config_file), ""
        if not best:
            older, newer = names[: -config.checkpoint.keep], names[-config.checkpoint.keep :]
            best_name = store.pointer(BEST)
            if best_name in older:
                # It is only there because it is the best.
                older.remove(best_name)
                what = " apart from the best"
            names = [*older, *newer][-number:]
        # A damaged checkpoint that would not be averaged is not in the way.
        found = [store.require(name) for name in names]
        if best:
            metric = config.validation.metric
            what = f" with a validation {metric}"
            found = [checkpoint for checkpoint in found if metric in checkpoint.metrics]
            # A lower loss is better.
            sign = -1 if metric == "loss" else 1
            found.sort(key=lambda checkpoint: sign * checkpoint.metrics[metric])
        if len(found) < min(number, 2):
            raise CheckpointError(
                f"{run.path} has {counted(len(found), 'checkpoint')}{what}, but an average needs 2 or more. "
                "Train it further, or with a larger checkpoint.keep."
            )
        if len(found) < number:
            LOG.warning(
                "%s has only %s%s: averaging these instead of %d. checkpoint.keep sets how many are kept.",
                run.path,
                counted(len(found), "checkpoint"),
                what,
                number,
            )
        chosen = sorted(found[-number:], key=lambda checkpoint: checkpoint.step)
        LOG.info("averaging %s", ", ".join(checkpoint.name for checkpoint in chosen))
        return store.save_average(chosen)
