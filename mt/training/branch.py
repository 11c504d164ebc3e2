"""Branching off a new run, which continues from an older checkpoint of another run."""

import contextlib
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.errors import CheckpointError, RunError
from mt.files import make_folder, new_folder
from mt.inference.loaded_model import check_tokenizers
from mt.run_directory import RunDirectory
from mt.training.progress import forget_later_steps
from mt.training.resume import check_same_config, write_config
from mt.training.run_log import log_file

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """The checkpoint at which a new run branches off."""

    run: RunDirectory
    store: CheckpointStore
    checkpoint: Checkpoint


def find_origin(path: Path, new: RunDirectory, config: Config) -> Origin:
    """The checkpoint in the folder ``path``, from which ``new`` is to continue under ``config``."""
    folder = path.absolute()
    run = RunDirectory(folder.parent.parent)
    if folder.parent != run.checkpoints_dir or not run.exists:
        raise RunError(
            f"{path} is not a checkpoint of a run: name a folder such as runs/NAME/checkpoints/step_0004000."
        )
    if new.path.exists() and (not new.path.is_dir() or any(new.path.iterdir())):
        raise RunError(
            f"{new.path} exists already, but only a new run can continue from a checkpoint of another run. "
            "Use another run directory with --run PATH, or resume that run with the same command without "
            "--from-checkpoint."
        )
    store = CheckpointStore(run.checkpoints_dir)
    checkpoint = store.require(folder.name)
    if checkpoint.average_of:
        raise CheckpointError(
            f"{path} is an average, which cannot be trained further. Name one of the averaged checkpoints."
        )
    check_same_config(run, config, otherwise="")
    check_tokenizers(run, checkpoint)
    return Origin(run, store, checkpoint)


def branch_off(origin: Origin, new: RunDirectory, config: Config) -> None:
    """Create ``new``, whole or not at all, as a copy of the run at ``origin`` as it was at that checkpoint.

    It has no metrics and curves of later steps, because it may be finished already under ``config``.
    """
    run, checkpoint = origin.run, origin.checkpoint
    origin.store.verify(checkpoint)
    copied = [checkpoint]
    best = origin.store.last_best(checkpoint.step)
    if best is not None and best != checkpoint.name:
        # If it is damaged, no older one takes its place.
        with contextlib.suppress(CheckpointError):
            saved = origin.store.require(best)
            origin.store.verify(saved)
            copied = [saved, checkpoint]
    make_folder(new.path.parent)
    with new_folder(new.path) as folder:
        partial = RunDirectory(folder)
        partial.tensorboard_dir.mkdir()
        for file in (
            run.src_tokenizer_file,
            run.tgt_tokenizer_file,
            run.corpus_file,
            run.metrics_file,
            *run.tensorboard_dir.glob("events.out.tfevents.*"),
        ):
            if file.is_file():
                shutil.copyfile(file, folder / file.relative_to(run.path))
        forget_later_steps(partial, checkpoint.step)
        for each in copied:
            shutil.copytree(each.folder, partial.checkpoints_dir / each.name)
        CheckpointStore(partial.checkpoints_dir).recover()
        write_config(partial, config)
    with log_file(new):
        LOG.info("continuing in %s from %s", new.path, checkpoint.folder)
