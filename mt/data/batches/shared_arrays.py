"""Arrays that the first process on a machine computes, and that all its processes map into memory."""

import io
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy.typing as npt

from mt import distributed
from mt.data.batches.dataset import mapped
from mt.data.cache import cache_folder, unnamed_file

LOG = logging.getLogger(__name__)

Arrays = Sequence[npt.NDArray[Any]]


def share_arrays(make: Callable[[], Arrays], check: Callable[[], None]) -> Arrays:
    """The arrays that ``make`` returns in the first process on this machine, mapped by all of them.

    All processes call this together. The arrays are in unnamed files in the cache folder, of which nothing is
    left behind, however the processes end; the other processes open them through ``/proc``. If the files
    cannot be written or opened, each process computes the arrays itself.

    Args:
        make: Returns arrays of one dimension, the same in each process.
        check: Called now and then by a waiting process; may raise to stop all of them.

    Raises:
        MtError, Interrupted: In all processes, if one of them raises it.
    """
    own: list[Arrays] = []
    with ExitStack() as files:

        def write() -> list[tuple[Path, str]] | None:
            arrays = make()
            try:
                return [_written(array, files.enter_context(unnamed_file())) for array in arrays]
            except OSError as error:
                files.close()
                LOG.warning(
                    "each process keeps the order of the epoch in its own memory: %s cannot be written (%s)",
                    cache_folder(),
                    error,
                )
                own.append(arrays)
                return None

        written = distributed.once_a_machine(write, check)
        # The files are closed as soon as all have mapped them.
        return distributed.together(lambda: own[0] if own else _mapped_or_made(written, make))


def _written(array: npt.NDArray[Any], file: io.FileIO) -> tuple[Path, str]:
    """Write all numbers; return the path by which other processes open the file, and the numbers' type."""
    with io.BufferedWriter(io.FileIO(file.fileno(), "wb", closefd=False)) as buffered:
        buffered.write(array.data)
    # A network file system may only now report that it is full.
    os.fsync(file.fileno())
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}"), array.dtype.str


def _mapped_or_made(written: list[tuple[Path, str]] | None, make: Callable[[], Arrays]) -> Arrays:
    if written is not None:
        try:
            return [mapped(path, kind) for path, kind in written]
        except OSError as error:
            LOG.warning("this process keeps the order of the epoch in its own memory (%s)", error)
    return make()
