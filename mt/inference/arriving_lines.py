"""Lines of a file or of standard input, as many at a time as have arrived while the model worked."""

import contextlib
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import typer

from mt.errors import DataError

MOST_LINES_AT_ONCE = 2000
# A device such as /dev/zero is one endless line.
MAX_LINE_BYTES = 10_000_000
STDIN = 0
STDIN_NAME = "standard input"

ItemT = TypeVar("ItemT")


class _End(Generic[ItemT]):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


def lines_of_stdin(invitation: str, *, keep_bad: bool = False) -> Iterator[str]:
    """The lines of standard input; someone who types them is invited to.

    Raises:
        DataError: If a line is not UTF-8, and is not to be kept for `why_not_text`.
    """
    if os.isatty(STDIN):
        typer.echo(f"{invitation} Ctrl-D ends.", err=True)
    return _lines(STDIN, STDIN_NAME, keep_bad)


def lines_of_file(file: Path, *, keep_bad: bool = False) -> Iterator[str]:
    """The lines of a file.

    Raises:
        DataError: If it cannot be read, or a line is not UTF-8, and is not to be kept for `why_not_text`.
    """
    return _lines(file, str(file), keep_bad)


def why_not_text(line: str, name: str, number: int) -> str | None:
    """What is wrong with a line that was kept although it is not UTF-8; None for all others.

    Args:
        line: With the bytes that are not UTF-8 as Python's ``surrogateescape`` has them.
        name: Of the file.
        number: Of the line.
    """
    try:
        line.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        return (
            f"{name}, line {number} is not UTF-8 ({error.reason} at byte {error.start}). "
            "Convert it, for example with iconv -f latin1 -t utf-8."
        )
    return None


def count_lines(file: Path | None) -> int | None:
    """How many lines a file has; None where only reading it once would tell, as with a pipe."""
    if file is None or not file.is_file():
        return None
    with contextlib.suppress(OSError), file.open("rb") as stream:
        blocks = iter(lambda: stream.read(1 << 20), b"")
        num_line_feeds, last = 0, b"\n"
        for block in blocks:
            num_line_feeds, last = num_line_feeds + block.count(b"\n"), block[-1:]
        return num_line_feeds + (last != b"\n")
    return None


def arriving(lines: Iterator[ItemT]) -> Iterator[list[ItemT]]:
    """Read ahead in a thread; give what has arrived, be it one line that someone types or a whole file."""
    arrived: queue.Queue[ItemT | _End[ItemT]] = queue.Queue(maxsize=10 * MOST_LINES_AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(_End())
        except Exception as error:
            # Raised again where it can be answered, once all lines before it are done.
            arrived.put(_End(error))

    threading.Thread(target=read, daemon=True).start()
    while True:
        block: list[ItemT] = []
        item = arrived.get()
        while not isinstance(item, _End):
            block.append(item)
            if len(block) == MOST_LINES_AT_ONCE or arrived.empty():
                break
            item = arrived.get()
        if block:
            yield block
        if isinstance(item, _End):
            if item.error is not None:
                raise item.error
            return


def _lines(source: Path | int, name: str, keep_bad: bool) -> Iterator[str]:
    """Lines end at a line feed and nowhere else, so that there are as many out as `wc -l` counts."""
    try:
        # The reading thread alone opens and closes: to close, or to end Python, while it waits for input
        # would wait for it, and sys.stdin would make Python abort.
        with open(source, "rb", closefd=source != STDIN) as stream:
            for number, raw in enumerate(iter(lambda: stream.readline(MAX_LINE_BYTES + 1), b""), start=1):
                if len(raw) > MAX_LINE_BYTES:
                    raise DataError(f"{name}, line {number} is longer than {MAX_LINE_BYTES:,} bytes.")
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape").rstrip("\r\n")
                reason = None if keep_bad else why_not_text(line, name, number)
                if reason is not None:
                    raise DataError(reason)
                yield line
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}.") from error
