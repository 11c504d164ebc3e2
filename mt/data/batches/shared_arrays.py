"""Arrays that the first process of a machine makes, and that all processes of the machine map into memory."""

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
    """The arrays that ``make`` returns on the first process of this machine, mapped by all of them.

    All processes call this together. The arrays are in files without a name in the cache folder, of which
    nothing is left behind, however the processes end; the others open them in ``/proc``, as the first one's.
    Where they cannot be written, or not be opened, each process makes the arrays for itself.

    Args:
        make: Returns arrays of one dimension, the same on each process.
        check: Called now and then by a process that waits; may raise to stop all of them.

    Raises:
        MtError, Interrupted: On all processes, if one of them raises it.
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
    """Write all numbers; by which path other processes open the file, and the kind of the numbers."""
    with io.BufferedWriter(io.FileIO(file.fileno(), "wb", closefd=False)) as buffered:
        buffered.write(array.data)
    # A network file system says only now that it is full.
    os.fsync(file.fileno())
    return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}"), array.dtype.str


def _mapped_or_made(written: list[tuple[Path, str]] | None, make: Callable[[], Arrays]) -> Arrays:
    if written is not None:
        try:
            return [mapped(path, kind) for path, kind in written]
        except OSError as error:
            LOG.warning("the order of the epoch is in the memory of this process (%s)", error)
    return make()
