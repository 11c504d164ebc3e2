"""Lines of a file or of standard input, read in blocks of what arrived while the model was busy."""

import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from mt.errors import DataError

MOST_LINES_AT_ONCE = 4000
# Because a device such as /dev/zero is one endless line.
MAX_LINE_BYTES = 10_000_000
STDIN = 0
STDIN_NAME = "standard input"

ItemT = TypeVar("ItemT")


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


def count_lines(file: Path) -> int | None:
    """Count the ends of lines in a file; None for a pipe, which can be read only once, or no file."""
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def lines_of(file: Path | None, *, keep_bad: bool = False) -> Iterator[str]:
    """Yield the lines of a file, or of standard input; ``keep_bad`` keeps those that are not UTF-8.

    Lines end at line feeds only, so that there are as many as ``wc -l`` counts.
    """
    name = STDIN_NAME if file is None else str(file)
    try:
        if file is None:
            # If another program has made it non-blocking, reading would end where nothing has arrived yet.
            os.set_blocking(STDIN, True)
        # The reading thread opens and closes the file itself: closing it in another thread, or exiting
        # Python, would wait for input, and using sys.stdin would make Python abort.
        with open(STDIN if file is None else file, "rb", closefd=file is not None) as stream:
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
                if not keep_bad and (reason := why_not_text(line, name, number)):
                    raise DataError(reason)
                yield line
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}.") from error


def arriving(lines: Iterator[ItemT]) -> Iterator[list[ItemT]]:
    """Read ahead in a thread and yield blocks of what has arrived: one typed line, or much of a file.

    An empty block says that nothing has arrived yet, so that what was begun can be finished.
    """
    # Each item in a list; the last thing to arrive is None, or what ended the reading.
    arrived: queue.Queue[list[ItemT] | Exception | None] = queue.Queue(maxsize=10 * MOST_LINES_AT_ONCE)

    def read() -> None:
        try:
            for line in lines:
                arrived.put([line])
            arrived.put(None)
        except Exception as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        block: list[ItemT] = []
        if arrived.empty():
            yield block
        item = arrived.get()
        while isinstance(item, list):
            block += item
            if len(block) == MOST_LINES_AT_ONCE or arrived.empty():
                break
            item = arrived.get()
        if block:
            yield block
        if isinstance(item, Exception):
            raise item
        if item is None:
            return
