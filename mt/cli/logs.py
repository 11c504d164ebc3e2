"""Terminal output: logs beside progress bars, escaped control characters, a stderr that may be lost."""

import contextlib
import io
import logging
import os
import sys
import textwrap
from typing import Any

from mt import processes
from mt.display import show_only_errors, show_progress_bars, terminal_width, visible

STDIN, STDERR = 0, 2


def survive_losing_stderr() -> None:
    """From now on drop what stderr does not accept, because its terminal, pipe or device is closed or full.

    A run whose terminal is gone still has to say that it stops, and to be saved.
    """
    # Unless something else, such as a test, has replaced the stream that Python made.
    if sys.stderr is sys.__stderr__:
        raw = _Forgiving(STDERR, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )


def say(text: str) -> None:
    """Print a line beside the output, on stderr; its control characters are made visible."""
    sys.stderr.write(visible(text) + "\n")
    sys.stderr.flush()


def show_logs() -> None:
    """Show the package's log lines and progress bars on stderr; warnings are marked as such.

    With several processes, only the first one shows them.

    From now on no control characters are written to a terminal, neither here nor on stdout.
    """
    show_progress_bars(_new_bar)
    escape_on_terminal()
    logger = logging.getLogger("mt")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = _BesideProgressBar()
    handler.setFormatter(_Plain())
    logger.handlers = [handler]
    if not processes.is_first():
        show_only_errors()


def escape_on_terminal() -> None:
    """From now on escape control characters on stdout if it is a terminal; files and pipes get every byte."""
    if sys.stdout.isatty():
        raw = io.FileIO(sys.stdout.fileno(), "w", closefd=False)
        sys.stdout = _Visible(io.BufferedWriter(raw), encoding="utf-8", line_buffering=True)


def _new_bar(**options: Any) -> Any:
    from tqdm import tqdm

    return tqdm(**options)


class _BesideProgressBar(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write a log line above the progress bars, if any was drawn."""
        if "tqdm" not in sys.modules:
            print(self.format(record), file=sys.stderr)
            return
        from tqdm import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


class _Plain(logging.Formatter):
    """The message alone; on a terminal, long lines are wrapped between words."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record, with its level if that is a warning or above."""
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        text = visible(prefix + record.getMessage())
        width = terminal_width()
        return text if width is None else "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    lines = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


class _Forgiving(io.FileIO):
    """Accepts everything, and drops what cannot be written."""

    def write(self, data: Any, /) -> int:
        """Write what the stream accepts, and report all of it as written."""
        written = None
        with contextlib.suppress(OSError):
            written = super().write(data)
        # Also None for a non-blocking terminal that is not ready.
        return len(memoryview(data)) if written is None else written


class _Visible(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        """Write ``text`` with its control characters escaped."""
        super().write(visible(text))
        return len(text)


def invite_typing(how: str) -> None:
    """Say on stderr how to type the input, if standard input is a terminal."""
    if os.isatty(STDIN):
        print(f"{how} Ctrl-D ends.", file=sys.stderr)
