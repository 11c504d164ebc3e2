"""What goes to stderr: logs beside progress bars, without control characters; stderr may be lost."""

import contextlib
import io
import logging
import os
import sys
from typing import Any

from mt import display, processes
from mt.display import visible

STDIN = 0
STDERR = 2


def survive_losing_stderr() -> None:
    """From now on drop what stderr does not accept: a run whose terminal is gone still has to be saved."""
    # Unless something else, such as a test, has replaced the stream that Python made.
    if sys.stderr is sys.__stderr__:
        raw = io.BufferedWriter(_Forgiving(STDERR, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def say(text: str) -> None:
    """Print a line on stderr, in the first process only, with its control characters escaped."""
    if processes.IS_FIRST:
        print(visible(text), file=sys.stderr, flush=True)


def show_logs() -> None:
    """Show log lines and progress bars of the first process, and log only errors of the others."""
    display.new_bar = _new_bar if processes.IS_FIRST else None
    logger = logging.getLogger("mt")
    logger.setLevel(logging.INFO if processes.IS_FIRST else logging.ERROR)
    logger.propagate = False
    logger.handlers = [_BesideProgressBar()] if processes.IS_FIRST else []


def print_input_hint(how: str) -> None:
    """Say on stderr how to type the input, if standard input is a terminal."""
    if os.isatty(STDIN):
        say(f"{how} Ctrl-D ends.")


def _new_bar(**options: Any) -> Any:
    from tqdm import tqdm  # Importing it takes as long as translating a sentence.

    return tqdm(**options)


class _BesideProgressBar(logging.Handler):
    def format(self, record: logging.LogRecord) -> str:
        """The message, with its level from a warning on."""
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return visible(prefix + record.getMessage())

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log line above the progress bars, if any was drawn."""
        tqdm = sys.modules.get("tqdm")
        write = print if tqdm is None else tqdm.tqdm.write
        write(self.format(record), file=sys.stderr)


class _Forgiving(io.FileIO):
    def write(self, data: Any, /) -> int:
        """Write what the stream accepts, and report all of it as written."""
        written = None
        with contextlib.suppress(OSError):
            written = super().write(data)
        # Also None for a non-blocking terminal that is not ready.
        return len(memoryview(data)) if written is None else written
