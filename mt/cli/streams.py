"""The standard streams: losing stderr ends nothing, and a terminal gets no control characters."""

import contextlib
import io
import os
import sys
from typing import Any

from mt.display import visible

STDIN, STDOUT, STDERR = range(3)


def survive_losing_stderr() -> None:
    """From now on drop what stderr does not take: a closed terminal or pipe, a full device behind it.

    A descriptor 0, 1 or 2 that is closed is opened on the null device, so that no file of ours gets that
    number and, with it, what is meant for stderr.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    # Not where something else, such as a test, has taken the place of the one that Python made.
    if sys.stderr is sys.__stderr__:
        raw = _Forgiving(STDERR, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )


def escape_on_terminal() -> None:
    """From now on, if stdout is a terminal, write control characters out; files and pipes get every byte."""
    if sys.stdout is not None and sys.stdout.isatty():
        raw = io.FileIO(sys.stdout.fileno(), "w", closefd=False)
        sys.stdout = _Visible(io.BufferedWriter(raw), encoding="utf-8", line_buffering=True)


class _Forgiving(io.FileIO):
    """Takes everything; passes on what can be passed on."""

    def write(self, data: Any, /) -> int:
        written = None
        with contextlib.suppress(OSError):
            written = super().write(data)
        # None also from a terminal that would make us wait, and was told not to.
        return len(memoryview(data)) if written is None else written


class _Visible(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        super().write(visible(text))
        return len(text)


def invite_typing(how: str) -> None:
    """Say on stderr how to type the input, if standard input is a terminal."""
    if os.isatty(STDIN):
        print(f"{how} Ctrl-D ends.", file=sys.stderr)
