"""The folder ``checkpoints/``: the names in it, the pointers ``latest`` and ``best``, and what is removed."""

import contextlib
import logging
import math
import re
from pathlib import Path

from mt.checkpoint.record import Checkpoint, read_record
from mt.errors import CheckpointError
from mt.files import remove_folder_atomically, write_atomically

LOG = logging.getLogger(__name__)

LATEST, BEST = "latest", "best"
_STEP_NAME = re.compile(r"step_(\d{7,18})")
_AVERAGE_NAME = re.compile(r"average_(\d{7,18})")


def step_names(directory: Path) -> list[str]:
    """The checkpoints that training saved, sound or not, from the oldest step to the newest."""
    return _names_in(directory, _STEP_NAME)


def average_names(directory: Path) -> list[str]:
    """The averages, likewise."""
    return _names_in(directory, _AVERAGE_NAME)


def read_pointer(directory: Path, pointer: str) -> str | None:
    """The name of a checkpoint in a pointer file; None if the file is missing or names no checkpoint."""
    try:
        text = (directory / pointer).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return text if _STEP_NAME.fullmatch(text) else None


def point_at(directory: Path, newest: Checkpoint) -> None:
    """Update the pointers after ``newest`` was saved as the last checkpoint of the run."""
    for pointer, name in ((BEST, last_best(directory, newest.step)), (LATEST, newest.name)):
        if name is not None and name != read_pointer(directory, pointer):
            write_atomically(directory / pointer, f"{name}\n")


def last_best(directory: Path, up_to_step: float = math.inf) -> str | None:
    """The best checkpoint up to a step: the last one that was the best of the run when it was saved."""
    for name in reversed(step_names(directory)):
        with contextlib.suppress(CheckpointError):
            if _step_of(name) <= up_to_step and read_record(directory / name).best:
                return name
    return None


def prune(directory: Path, newest: Checkpoint, keep: int) -> None:
    """Remove all but the last ``keep`` up to ``newest``, the best, and those that the pointers name.

    Later steps than ``newest`` are left alone: they are damaged, and training has not reached them again. If
    one cannot be removed, there is a warning: all that matters has been saved.
    """
    done = [name for name in step_names(directory) if _step_of(name) <= newest.step]
    kept = {*done[-keep:], newest.name, read_pointer(directory, BEST), read_pointer(directory, LATEST)}
    for name in done:
        if name not in kept:
            try:
                remove_folder_atomically(directory / name)
            except OSError as error:
                folder, why = directory / name, error.strerror or error
                LOG.warning("cannot remove %s, which is no longer kept: %s", folder, why)


def remove_skipped(directory: Path, step: int) -> None:
    """Remove the checkpoints between the latest and one of this step, which is about to be saved.

    They are damaged, and training has continued from an earlier one. It may pass them without saving the same
    steps again, and then they must neither count as the best nor as one of those that are kept.
    """
    latest = read_pointer(directory, LATEST)
    for name in step_names(directory) if latest else []:
        if _step_of(latest or "") < _step_of(name) < step:
            if read_pointer(directory, BEST) == name:
                (directory / BEST).unlink()
            remove_folder_atomically(directory / name)


def _names_in(directory: Path, pattern: re.Pattern[str]) -> list[str]:
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    return sorted(filter(pattern.fullmatch, names), key=_step_of)


def _step_of(name: str) -> int:
    return int(name.rpartition("_")[2])
