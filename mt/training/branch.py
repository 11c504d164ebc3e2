"""Branching off a new run, which continues from an older checkpoint of another run."""

import contextlib
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from mt.checkpoint.directory import last_best
from mt.checkpoint.record import RECORD, Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.errors import CheckpointError, Remedy, RunError
from mt.files import make_folder, new_folder
from mt.inference.loaded_model import refuse_other_tokenizers
from mt.run_directory import RunDirectory
from mt.training.metrics_file import read_points
from mt.training.progress import forget_later_steps
from mt.training.resume import refuse_changed_config, write_config
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
    if _is_filled(new.path):
        raise _exists_already(new)
    store = CheckpointStore(run.checkpoints_dir)
    checkpoint = store.require(folder.name)
    if checkpoint.average_of:
        raise CheckpointError(
            f"{path} is an average, which cannot be trained further. Name one of the averaged checkpoints."
        )
    refuse_changed_config(run, config, remedies=())
    refuse_other_tokenizers(run, checkpoint)
    return Origin(run, store, checkpoint)


def branch_off(origin: Origin, new: RunDirectory, config: Config) -> None:
    """Create ``new`` as a copy of the run at ``origin`` as it was at that checkpoint, atomically.

    It has no metrics and curves of later steps, because it may be finished already under ``config``.
    """
    path = new.path.resolve()  # "." has no name, and a link cannot be replaced by a folder.
    make_folder(path.parent)
    with new_folder(path) as folder:
        partial = RunDirectory(folder)
        partial.tensorboard_dir.mkdir()
        for file in _files(origin.run):
            shutil.copyfile(file, folder / file.relative_to(origin.run.path))
        forget_later_steps(partial, origin.checkpoint.step)
        _copy_checkpoints(origin, CheckpointStore(partial.checkpoints_dir))
        # Last, because this makes the folder a run.
        write_config(partial, config)
        if _is_filled(new.path):
            raise _exists_already(new)
    with log_file(new):
        LOG.info("continuing in %s from %s", new.path, origin.checkpoint.folder)


def _is_filled(path: Path) -> bool:
    """Whether there is a file, or a folder that is not empty."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def _exists_already(new: RunDirectory) -> RunError:
    return RunError(
        f"{new.path} exists already, but only a new run can continue from a checkpoint of another run.",
        Remedy.OTHER_RUN,
        Remedy.RESUME,
    )


def _files(run: RunDirectory) -> list[Path]:
    """The files that resuming reads besides config and checkpoints."""
    found = [
        run.src_tokenizer_file,
        run.tgt_tokenizer_file,
        run.corpus_file,
        run.metrics_file,
        run.samples_file,
        *run.tensorboard_dir.glob("events.out.tfevents.*"),
    ]
    return [file for file in found if file.is_file()]


def _copy_checkpoints(origin: Origin, store: CheckpointStore) -> None:
    """Copy the checkpoint at the origin, and the best one before it if that still exists."""
    checkpoint = origin.checkpoint
    _verify(origin.store, checkpoint)
    best = checkpoint if checkpoint.best else _best_before(origin)
    if best is None and _was_validated(origin):
        LOG.warning(
            "the best checkpoint up to step %s is no longer in %s, or damaged: no checkpoint is marked best "
            "until a validation improves on it",
            f"{checkpoint.step:,}",
            origin.run.path,
        )
    for each in (checkpoint,) if best in (None, checkpoint) else (best, checkpoint):
        assert each is not None
        folder = store.directory / each.name
        make_folder(folder)
        for part in (RECORD, *each.parts):
            shutil.copyfile(each.folder / part, folder / part)
    store.recover()


def _verify(store: CheckpointStore, checkpoint: Checkpoint) -> None:
    """Load all parts of a checkpoint, before it is copied."""
    store.load_model(checkpoint)
    store.load_training_state(checkpoint)


def _was_validated(origin: Origin) -> bool:
    return any(
        point.kind == "validation" and point.step <= origin.checkpoint.step
        for point in read_points(origin.run.metrics_file)
    )


def _best_before(origin: Origin) -> Checkpoint | None:
    """The best checkpoint before the origin; None if it has been removed or is damaged."""
    name = last_best(origin.store.directory, origin.checkpoint.step - 1)
    if name is None:
        return None
    # Not an older one if it is damaged, which was the best only until then.
    with contextlib.suppress(CheckpointError):
        found = origin.store.require(name)
        _verify(origin.store, found)
        return found
    return None
