"""The log of a run for people, ``train.log``, and its sessions for programs, ``sessions.jsonl``."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime

from mt import distributed, processes
from mt.display import visible
from mt.errors import MtError, is_bug
from mt.files import append_line
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)


class RunLog(logging.FileHandler):
    """Writes all messages into ``train.log``, but for a full disk, and warnings into the session's record."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run.log_file, encoding="utf-8")
        self._run = run
        who = "" if processes.IS_FIRST else f"process {processes.RANK}: "
        self.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who}%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        super().emit(record)
        if record.levelno == logging.WARNING:
            record_session(self._run, "warning", text=record.getMessage())

    def format(self, record: logging.LogRecord) -> str:
        """The message without control characters, because the file may be shown in a terminal."""
        return visible(super().format(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore a full disk."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextlib.contextmanager
def log_file(run: RunDirectory) -> Iterator[None]:
    """Also write messages to the run's own files, with an error that leaves the block; a bug says where."""
    handler = RunLog(run)
    logger = logging.getLogger("mt")
    logger.addHandler(handler)
    record_session(run, "start")
    try:
        yield
    except Exception as error:
        what = str(error) if isinstance(error, MtError) else f"{type(error).__name__}: {error}"
        traceback = None
        if distributed.is_lost_connection(error):
            what = "another process was lost"
        elif is_bug(error):
            traceback = type(error), error, error.__traceback__
        record_session(run, "end", reason=f"Failed: {what}")
        # Into the file alone, because the caller informs the user.
        handler.handle(LOG.makeRecord(LOG.name, logging.ERROR, "", 0, "Failed: %s", (what,), traceback))
        if traceback:
            error.add_note(f"the traceback in {run.log_file}")
        raise
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # What the disk has refused is still buffered.
            handler.close()


def record_session(run: RunDirectory, event: str, **facts: object) -> None:
    """In the first process, add an event of the session, such as its end, to ``sessions.jsonl``."""
    if not processes.IS_FIRST:
        return
    time = datetime.now().astimezone().isoformat(timespec="seconds")
    with contextlib.suppress(OSError):  # The disk may be full.
        append_line(run.sessions_file, json.dumps({"time": time, "event": event, **facts}))
