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
    """Writes all messages into ``train.log``, but for a full disk, and warnings into the session's record."""

    def __init__(self, run: RunDirectory, *, is_session: bool) -> None:
        super().__init__(run.log_file, encoding="utf-8")
        self._run = run
        self.is_session = is_session
        who = "" if processes.IS_FIRST else f"process {processes.RANK}: "
        self.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)s {who}%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        super().emit(record)
        if self.is_session and record.levelno >= logging.WARNING:
            record_session(self._run, "warning", text=record.getMessage())

    def format(self, record: logging.LogRecord) -> str:
        """The message without control characters, because the file may be shown in a terminal."""
        return visible(super().format(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore a full disk."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextlib.contextmanager
def log_file(run: RunDirectory, *, is_session: bool = False) -> Iterator[None]:
    """Also write messages to the run's own files, with an error of this process that leaves the block."""
    handler = RunLog(run, is_session=is_session)
    logger = logging.getLogger("mt")
    logger.addHandler(handler)
    if is_session:
        record_session(run, "start")
    try:
        yield
    except Exception as error:
        is_own = not distributed.is_lost_connection(error)
        what = str(error) if isinstance(error, MtError) else f"{type(error).__name__}: {error}"
        reason = f"Failed: {what if is_own else 'another process was lost'}"
        if is_session:
            record_session(run, "end", reason=reason)
            handler.is_session = False
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
