"""A checkpoint held open, so that it can be read to its end though training removes it meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from torch import Tensor

from mt.checkpoint.parts import MODEL, model_shapes, read_model
from mt.checkpoint.record import Checkpoint, DamagedError, explain_unreadable, read_record
from mt.regular_files import open_regular


class VanishedError(Exception):
    """There is no such checkpoint, or no longer: its folder was removed or replaced while it was opened."""


@dataclass(frozen=True)
class HeldCheckpoint:
    """A checkpoint whose weights are open: what is read of it is of one save."""

    checkpoint: Checkpoint
    """Its record."""
    weights: BufferedReader

    def model_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight, of which nothing else is read; not verified.

        Raises:
            DamagedError: If the file holds no weights.
        """
        return model_shapes(self.weights)

    def load_model(self) -> dict[str, Tensor]:
        """Its weights by name, on the CPU, verified.

        Raises:
            DamagedError: If they are not what was saved, or not finite.
        """
        return read_model(self.weights, self.checkpoint)


@contextmanager
def open_checkpoint(folder: Path) -> Iterator[HeldCheckpoint]:
    """Open record and weights of the checkpoint in ``folder``, for the length of a ``with``.

    Raises:
        VanishedError: If the folder is not there, or is another by the time both are open.
        DamagedError: If the record or the weights are missing, or the record is not what was saved.
    """
    with _opened(folder) as opened:
        with _unless_vanished(folder, opened), explain_unreadable(MODEL):
            weights = open_regular(Path(MODEL), folder=opened)
        with weights:
            with _unless_vanished(folder, opened):
                checkpoint = read_record(folder, opened=opened)
            yield HeldCheckpoint(checkpoint, weights)


def load_model(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights of a checkpoint that nobody removes meanwhile; see `HeldCheckpoint.load_model`."""
    with explain_unreadable(MODEL):
        file = open_regular(checkpoint.folder / MODEL)
    with file:
        return read_model(file, checkpoint)


def read_record_of(folder: Path) -> Checkpoint:
    """The record of the checkpoint in ``folder``.

    Raises:
        VanishedError: If the folder is not there, or was removed or replaced meanwhile.
        DamagedError: If the record is missing or not what was saved.
    """
    with _opened(folder) as opened, _unless_vanished(folder, opened):
        return read_record(folder, opened=opened)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A folder's descriptor, by which its files are reached wherever it is moved."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise VanishedError from error
    except OSError as error:
        raise DamagedError(f"its folder cannot be read ({error.strerror})") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _unless_vanished(folder: Path, opened: int) -> Iterator[None]:
    """Damage in a folder that is being removed is none."""
    try:
        yield
    except DamagedError as error:
        try:
            is_there = os.path.samestat(folder.stat(), os.fstat(opened))
        except OSError:
            is_there = False
        if is_there:
            raise
        raise VanishedError from error
