"""A new run that continues from an older checkpoint of another one: `mt train --from-checkpoint`."""

import contextlib
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from mt.atomic_files import make_folder, partial_path, sync_folder, write_synced
from mt.checkpoint.record import RECORD, Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.errors import CheckpointError, RunError
from mt.inference.loaded_model import refuse_other_tokenizers
from mt.run_directory import RunDirectory
from mt.training.progress import read_metrics
from mt.training.resume import refuse_changed_config, write_config
from mt.training.run_log import log_file

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """Where a new run branches off."""

    run: RunDirectory
    store: CheckpointStore
    checkpoint: Checkpoint


def find_origin(path: Path, new: RunDirectory, config: Config) -> Origin:
    """The checkpoint in the folder ``path``, from which ``new`` is to continue under ``config``.

    Raises:
        RunError: If ``path`` is no checkpoint of a run, ``new`` is there already, or config or tokenizers are
            not those that the checkpoint was made with.
        CheckpointError: If it is damaged, or an average.
    """
    folder = path.absolute()
    run = RunDirectory(folder.parent.parent)
    if folder.parent != run.checkpoints_dir or not run.exists:
        raise RunError(
            f"{path} is no checkpoint of a run: name a folder such as runs/NAME/checkpoints/step_0004000."
        )
    if new.path.exists() and (not new.path.is_dir() or any(new.path.iterdir())):
        raise RunError(
            f"{new.path} exists already, and --from-checkpoint begins a new run: choose another --run. "
            "If it was begun like this, the same command without --from-checkpoint goes on."
        )
    store = CheckpointStore(run.checkpoints_dir)
    checkpoint = store.require(folder.name)
    if checkpoint.average_of:
        raise CheckpointError(
            f"{path} is an average, which cannot be trained further. Name one of its parts."
        )
    refuse_changed_config(run, config, way_out="Take the config of that run, or train from the beginning.")
    refuse_other_tokenizers(run, checkpoint)
    return Origin(run, store, checkpoint)


def branch_off(origin: Origin, new: RunDirectory, config: Config) -> None:
    """Let ``new`` appear as the run at ``origin`` was at that checkpoint, ready to be resumed, or not at all.

    What the figures and curves hold of later steps is taken back when it is resumed.

    Raises:
        CheckpointError: If the checkpoint is damaged.
        OSError: If the disk refuses.
    """
    path = new.path.absolute()  # "." has no name to add to.
    partial = RunDirectory(partial_path(path))
    shutil.rmtree(partial.path, ignore_errors=True)
    try:
        make_folder(partial.tensorboard_dir)
        for file in _files(origin.run):
            write_synced(partial.path / file.relative_to(origin.run.path), file.read_bytes())
        _copy_checkpoints(origin, CheckpointStore(partial.checkpoints_dir))
        # Last, for it makes the folder a run.
        write_config(partial, config)
        partial.path.rename(path)
    except BaseException:
        shutil.rmtree(partial.path, ignore_errors=True)
        raise
    sync_folder(path.parent)
    with log_file(new):
        LOG.info("continuing in %s from %s", new.path, origin.checkpoint.folder)


def _files(run: RunDirectory) -> list[Path]:
    """What resuming reads besides config and checkpoints."""
    found = [
        run.src_tokenizer_file,
        run.tgt_tokenizer_file,
        run.corpus_file,
        run.metrics_file,
        *run.tensorboard_dir.glob("events.out.tfevents.*"),
    ]
    return [file for file in found if file.is_file()]


def _copy_checkpoints(origin: Origin, store: CheckpointStore) -> None:
    """The one at the origin, and before it the best until then, where that is still there."""
    checkpoint = origin.checkpoint
    best = checkpoint if checkpoint.best else _best_before(origin)
    if best is None and _was_validated(origin):
        LOG.warning(
            "the best checkpoint until step %s is no longer in %s: none is marked best before a validation "
            "is better",
            f"{checkpoint.step:,}",
            origin.run.path,
        )
    for each in (checkpoint,) if best in (None, checkpoint) else (best, checkpoint):
        assert each is not None
        # For their sentences: what is copied has to be sound.
        origin.store.load_model(each)
        origin.store.load_training_state(each)
        folder = store.directory / each.name
        make_folder(folder)
        for part in (RECORD, *each.parts):
            write_synced(folder / part, (each.folder / part).read_bytes())
    store.recover()


def _was_validated(origin: Origin) -> bool:
    return any(
        point["kind"] == "validation" and point["step"] <= origin.checkpoint.step
        for point in read_metrics(origin.run.metrics_file)
    )


def _best_before(origin: Origin) -> Checkpoint | None:
    for name in reversed(origin.store.names()):
        # One that is damaged cannot be had.
        with contextlib.suppress(CheckpointError):
            found = origin.store.require(name)
            if found.step < origin.checkpoint.step and found.best:
                return found
    return None
