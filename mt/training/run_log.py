"""The log file of a run, ``train.log``."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator

from mt import distributed, processes
from mt.display import visible
from mt.errors import MtError
from mt.files import append_line
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def log_file(run: RunDirectory) -> Iterator[Callable[[int, str], None]]:
    """Also write log messages to the run's own log file, those of other processes with their number.

    It yields a function that writes a line only to the file, with a level of `logging`.

    An error that leaves the ``with`` block is written there too, because stderr may be closed or far away.
    The loss of another process is not, because the first process reports it.
    """
    handler = _FileHandler(run.log_file, encoding="utf-8")
    who = "" if processes.is_first() else f"process {processes.rank()}: "
    handler.setFormatter(_VisibleFormatter(f"%(asctime)s %(levelname)s {who}%(message)s"))
    logger = logging.getLogger("mt")
    logger.addHandler(handler)

    def note(level: int, text: str) -> None:
        record = LOG.makeRecord(LOG.name, level, "", 0, "%s", (text,), None)
        with contextlib.suppress(OSError):  # The disk may be full.
            append_line(run.log_file, handler.format(record))

    try:
        yield note
    except Exception as error:
        if not distributed.is_lost_connection(error):
            text = str(error) if isinstance(error, MtError) else f"{type(error).__name__}: {error}"
            # The caller informs the user.
            note(logging.ERROR, f"Failed: {text}")
        raise
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # What the disk has refused is still buffered.
            handler.close()


class _FileHandler(logging.FileHandler):
    """Drops lines that a full disk refuses; whatever must not be lost is saved, and that is reported."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class _VisibleFormatter(logging.Formatter):
    """Makes control characters visible, because the file may be shown in a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))
