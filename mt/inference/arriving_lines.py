"""Lines of a file or of standard input, read in blocks of what arrived while the model was busy."""

import contextlib
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

from mt.errors import DataError

MOST_LINES_AT_ONCE = 4000
# Because a device such as /dev/zero is one endless line.
MAX_LINE_BYTES = 10_000_000
STDIN = 0
STDIN_NAME = "standard input"

ItemT = TypeVar("ItemT")


class _End(Generic[ItemT]):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error


def lines_of_stdin(*, keep_bad: bool = False) -> Iterator[str]:
    """Yield the lines of standard input, as `lines_of_file` does those of a file."""
    return _lines(STDIN, STDIN_NAME, keep_bad)


def lines_of_file(file: Path, *, keep_bad: bool = False) -> Iterator[str]:
    """Yield the lines of a file; ``keep_bad`` keeps lines that are not UTF-8, for `why_not_text`."""
    return _lines(file, str(file), keep_bad)


def why_not_text(line: str, name: str, number: int) -> str | None:
    """Describe why a line, with undecodable bytes as surrogates, is not UTF-8; None for a line that is."""
    try:
        line.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        return (
            f"{name}, line {number} is not UTF-8 ({error.reason} at byte {error.start}). "
            "Convert it, for example with iconv -f latin1 -t utf-8."
        )
    return None


def count_lines(file: Path | None) -> int | None:
    """Count the lines of a file; None for a pipe or standard input, which can be read only once."""
    if file is None or not file.is_file() or is_stdin(file):
        return None
    with contextlib.suppress(OSError), file.open("rb") as stream:
        blocks = iter(lambda: stream.read(1 << 20), b"")
        num_line_feeds, last = 0, b"\n"
        for block in blocks:
            num_line_feeds, last = num_line_feeds + block.count(b"\n"), block[-1:]
        return num_line_feeds + (last != b"\n")
    return None


def is_stdin(file: Path) -> bool:
    """Whether standard input reads this file, which on macOS can then be read only once."""
    try:
        return os.path.samestat(file.stat(), os.fstat(STDIN))
    except OSError:  # It is closed.
        return False


def arriving(lines: Iterator[ItemT]) -> Iterator[list[ItemT]]:
    """Read ahead in a thread and yield blocks of what has arrived: one typed line, or much of a file.

    An empty block says that nothing has arrived yet, so that what was begun can be finished.
    """
    arrived: queue.Queue[ItemT | _End[ItemT]] = queue.Queue(maxsize=10 * MOST_LINES_AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(_End())
        except Exception as error:
            # Raised again in the main thread, after all lines before it.
            arrived.put(_End(error))

    threading.Thread(target=read, daemon=True).start()
    while True:
        block: list[ItemT] = []
        if arrived.empty():
            yield []
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
    """Lines end at line feeds only, so that there are as many as ``wc -l`` counts."""
    try:
        if source == STDIN:
            # If another program has made it non-blocking, reading would end where nothing has arrived yet.
            os.set_blocking(STDIN, True)
        # The reading thread opens and closes the file itself: closing it in another thread, or exiting
        # Python, would wait for input, and using sys.stdin would make Python abort.
        with open(source, "rb", closefd=source != STDIN) as stream:
            raw_lines = iter(lambda: stream.readline(MAX_LINE_BYTES + 2), b"")
            for number, raw in enumerate(raw_lines, start=1):
                # Its end has at most two bytes.
                text = raw.removesuffix(b"\n").removesuffix(b"\r")
                if len(text) > MAX_LINE_BYTES:
                    raise DataError(
                        f"{name}, line {number} is longer than {MAX_LINE_BYTES:,} bytes: break it into "
                        "shorter lines."
                    )
                line = text.decode("utf-8-sig" if number == 1 else "utf-8", "surrogateescape")
                reason = None if keep_bad else why_not_text(line, name, number)
                if reason is not None:
                    raise DataError(reason)
                yield line
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}.") from error
