"""The folder ``checkpoints/``: the names in it, the pointers ``latest`` and ``best``, and what is removed."""

import contextlib
import logging
import math
import os
import re
from pathlib import Path

from mt.checkpoint.record import Checkpoint, read_record
from mt.errors import CheckpointError
from mt.files import read_text, remove_folder_atomically, write_atomically

LOG = logging.getLogger(__name__)

LATEST, BEST = "latest", "best"
_STEP_NAME = re.compile(r"step_\d{7,18}")
_AVERAGE_NAME = re.compile(r"average_\d{7,18}")
_MAX_POINTER_BYTES = 100


def step_names(directory: Path) -> list[str]:
    """The checkpoints that training saved, sound or not, from the oldest step to the newest."""
    return _names_in(directory, _STEP_NAME)


def average_names(directory: Path) -> list[str]:
    """The averages, likewise."""
    return _names_in(directory, _AVERAGE_NAME)


def read_pointer(directory: Path, pointer: str) -> str | None:
    """The name of a checkpoint in a pointer file; None if the file is missing or names no checkpoint."""
    try:
        text = read_text(directory / pointer, max_bytes=_MAX_POINTER_BYTES).strip()
    except OSError:
        return None
    return text if _STEP_NAME.fullmatch(text) else None


def point_at(directory: Path, newest: Checkpoint) -> None:
    """Update the pointers after ``newest`` was saved as the last checkpoint of the run."""
    best = last_best(directory, newest.step)
    if best is not None and best != read_pointer(directory, BEST):
        write_atomically(directory / BEST, f"{best}\n")
    if newest.name != read_pointer(directory, LATEST):
        write_atomically(directory / LATEST, f"{newest.name}\n")


def has_no_best_yet(directory: Path) -> bool:
    """Whether no validation has marked a checkpoint; a damaged or lost pointer does not prove that."""
    return not os.path.lexists(directory / BEST) and last_best(directory) is None


def last_best(directory: Path, up_to_step: float = math.inf) -> str | None:
    """The best checkpoint up to a step: the last one that was the best of the run when it was saved."""
    for name in reversed(step_names(directory)):
        with contextlib.suppress(CheckpointError):
            if _step_of(name) <= up_to_step and read_record(directory / name).best:
                return name
    return None


def prune(directory: Path, newest: Checkpoint, keep: int) -> None:
    """Remove all but the last ``keep`` up to ``newest``, the best, and those that the pointers name.

    Later steps than ``newest`` are left alone: they were found damaged, and training has not reached them
    again. If one cannot be removed, there is a warning: all that matters has been saved.
    """
    done = [name for name in step_names(directory) if _step_of(name) <= newest.step]
    kept = {*done[-keep:], newest.name, read_pointer(directory, BEST), read_pointer(directory, LATEST)}
    for name in done:
        folder = directory / name
        # A link to a folder was not made by us.
        if name not in kept and folder.is_dir() and not folder.is_symlink():
            try:
                remove_folder_atomically(folder)
            except OSError as error:
                LOG.warning("cannot remove %s, which is no longer kept: %s", folder, error.strerror or error)


def remove_skipped(directory: Path, step: int) -> None:
    """Remove the checkpoints between the latest and one of this step, which is about to be saved.

    They were found damaged, and training has continued from an earlier one. It may pass them without saving
    the same steps again, and then they must neither count as the best nor as one of those that are kept.
    """
    latest = read_pointer(directory, LATEST)
    if latest is None:
        return
    for name in step_names(directory):
        folder = directory / name
        if _step_of(latest) < _step_of(name) < step and folder.is_dir() and not folder.is_symlink():
            if read_pointer(directory, BEST) == name:
                (directory / BEST).unlink()
            remove_folder_atomically(folder)


def _names_in(directory: Path, pattern: re.Pattern[str]) -> list[str]:
    try:
        paths = list(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(
            f"Cannot read {directory}: {error.strerror}. Check its permissions and its disk."
        ) from error
    return sorted((path.name for path in paths if pattern.fullmatch(path.name)), key=_step_of)


def _step_of(name: str) -> int:
    return int(name.rpartition("_")[2])
