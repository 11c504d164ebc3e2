"""Branching off a new run, which continues from an older checkpoint of another run."""

import contextlib
import logging
import shutil
from pathlib import Path

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.data.corpus import Corpus, load_corpus
from mt.data.prepare import check_same_corpus
from mt.errors import CheckpointError, RunError
from mt.files import make_folder, new_folder
from mt.inference.loaded_model import check_tokenizers
from mt.run_directory import RunDirectory
from mt.training.interruption import Interruption
from mt.training.progress import forget_later_steps
from mt.training.resume import check_same_config, write_config
from mt.training.run_log import log_file

LOG = logging.getLogger(__name__)


def branch_off(path: Path, new: RunDirectory, config: Config, interruption: Interruption) -> Corpus:
    """Copy a run, whole or not at all, as it was at its checkpoint in ``path``; return its corpus."""
    folder = path.absolute()
    run = RunDirectory(folder.parent.parent)
    store = CheckpointStore(run.checkpoints_dir)
    if folder.parent != run.checkpoints_dir or not run.exists:
        raise RunError(
            f"{path} is not a checkpoint of a run: name a folder such as runs/NAME/checkpoints/step_0004000."
        )
    if new.path.exists() and (not new.path.is_dir() or any(new.path.iterdir())):
        raise RunError(
            f"{new.path} exists already. Use another run directory with --run PATH, or resume that run "
            "without --from-checkpoint."
        )
    checkpoint = store.require(folder.name)
    if checkpoint.average_of:
        raise CheckpointError(
            f"{path} is an average, which cannot be trained further. Name one of the averaged checkpoints."
        )
    check_same_config(run, config)
    check_tokenizers(run, checkpoint)
    store.verify(checkpoint)
    with interruption.at_once():
        corpus = load_corpus(config.data, config.cleaning)
    check_same_corpus(run, corpus)
    copied = {checkpoint.name}
    if best := store.last_best(checkpoint.step):
        # If it is damaged, no older one takes its place.
        with contextlib.suppress(CheckpointError):
            store.verify(store.require(best))
            copied.add(best)
    make_folder(new.path.parent)
    with new_folder(new.path) as unfinished:
        partial = RunDirectory(unfinished)
        for file in (run.src_tokenizer_file, run.tgt_tokenizer_file, run.corpus_file, run.metrics_file):
            if file.is_file():
                shutil.copyfile(file, unfinished / file.name)
        if run.tensorboard_dir.is_dir():
            shutil.copytree(run.tensorboard_dir, partial.tensorboard_dir)
        # It may be finished already under this config.
        forget_later_steps(partial, checkpoint.step)
        for name in copied:
            shutil.copytree(run.checkpoints_dir / name, partial.checkpoints_dir / name)
        CheckpointStore(partial.checkpoints_dir).recover()
        write_config(partial, config)
    with log_file(new):
        LOG.info("continuing in %s from %s", new.path, checkpoint.folder)
    return corpus
