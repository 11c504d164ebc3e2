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


class RunLog(logging.FileHandler):
    """Writes all log messages into ``train.log``, and those of a session from WARNING on into its record.

    Lines that a full disk refuses are dropped: whatever must not be lost is saved, and that is reported.
    """

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run.log_file, encoding="utf-8")
        self._run = run
        self.in_session = False
        who = "" if processes.is_first() else f"process {processes.rank()}: "
        self.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who}%(message)s"))

    def begin_session(self) -> None:
        """From now on, this is a session of training."""
        record_session(self._run, "start")
        self.in_session = True

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        super().emit(record)
        if self.in_session and record.levelno >= logging.WARNING:
            record_session(self._run, "warning", text=record.getMessage())

    def format(self, record: logging.LogRecord) -> str:
        """The message without control characters, because the file may be shown in a terminal."""
        return visible(super().format(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore a full disk."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextlib.contextmanager
def log_file(run: RunDirectory) -> Iterator[RunLog]:
    """Also write log messages to the run's own files, with an error that leaves the ``with`` block.

    The loss of another process is no error of this one, and the first process reports it.
    """
    handler = RunLog(run)
    logger = logging.getLogger("mt")
    logger.addHandler(handler)
    try:
        yield handler
    except Exception as error:
        is_own = not distributed.is_lost_connection(error)
        what = str(error) if isinstance(error, MtError) else f"{type(error).__name__}: {error}"
        reason = f"Failed: {what if is_own else 'another process was lost'}"
        if handler.in_session:
            record_session(run, "end", reason=reason)
            handler.in_session = False
        if is_own:
            # The caller informs the user.
            handler.handle(LOG.makeRecord(LOG.name, logging.ERROR, "", 0, "%s", (reason,), None))
        raise
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # What the disk has refused is still buffered.
            handler.close()


def record_session(run: RunDirectory, event: str, **facts: object) -> None:
    """Add an event of the session, such as its end with the reason, to ``sessions.jsonl``."""
    time = datetime.now().astimezone().isoformat(timespec="seconds")
    with contextlib.suppress(OSError):  # The disk may be full.
        append_line(run.sessions_file, json.dumps({"time": time, "event": event, **facts}))
