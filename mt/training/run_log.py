"""The log of a run for people, ``train.log``, and its sessions for programs, ``sessions.jsonl``."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime

from mt import distributed, processes
from mt.display import visible
from mt.errors import MtError
from mt.files import append_line
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def log_file(run: RunDirectory) -> Iterator[None]:
    """Also write log messages to the run's own log file, those of other processes with their number.

    An error that leaves the ``with`` block is written there too, because stderr may be closed or far away.
    The loss of another process is not, because the first process reports it.
    """
    handler = _FileHandler(run.log_file, encoding="utf-8")
    who = "" if processes.is_first() else f"process {processes.rank()}: "
    handler.setFormatter(_VisibleFormatter(f"%(asctime)s %(levelname)s {who}%(message)s"))
    logger = logging.getLogger("mt")
    logger.addHandler(handler)
    try:
        yield
    except Exception as error:
        if not distributed.is_lost_connection(error):
            # The caller informs the user.
            record = LOG.makeRecord(LOG.name, logging.ERROR, "", 0, "%s", (_failure(error),), None)
            with contextlib.suppress(OSError):  # The disk may be full.
                append_line(run.log_file, handler.format(record))
        raise
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # What the disk has refused is still buffered.
            handler.close()


@contextlib.contextmanager
def recorded_session(run: RunDirectory) -> Iterator[None]:
    """Record the start of a session of training, its warnings, and its end if it fails."""
    record_session(run, "start")
    handler = _SessionHandler(run)
    logger = logging.getLogger("mt")
    logger.addHandler(handler)
    try:
        yield
    except Exception as error:
        lost = distributed.is_lost_connection(error)
        record_session(run, "end", reason="Failed: another process was lost" if lost else _failure(error))
        raise
    finally:
        logger.removeHandler(handler)


def record_session(run: RunDirectory, event: str, **facts: object) -> None:
    """Add an event of the session, such as its end with the reason, to ``sessions.jsonl``."""
    time = datetime.now().astimezone().isoformat(timespec="seconds")
    with contextlib.suppress(OSError):  # The disk may be full.
        append_line(run.sessions_file, json.dumps({"time": time, "event": event, **facts}))


def _failure(error: Exception) -> str:
    return f"Failed: {error if isinstance(error, MtError) else f'{type(error).__name__}: {error}'}"


class _SessionHandler(logging.Handler):
    """Records warnings and errors."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(logging.WARNING)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        """Record one."""
        record_session(self._run, "warning", text=record.getMessage())


class _FileHandler(logging.FileHandler):
    """Drops lines that a full disk refuses; whatever must not be lost is saved, and that is reported."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


class _VisibleFormatter(logging.Formatter):
    """Makes control characters visible, because the file may be shown in a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))
