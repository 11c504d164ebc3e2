"""Output for people: escaping untrusted text, counts and sizes, tables, progress bars.

A library must not draw on its user's terminal: there are no bars until the command line has called
`show_progress_bars`, and none if stderr is not a terminal.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm

LOG = logging.getLogger(__name__)
T = TypeVar("T")

SECONDS_BETWEEN_LINES = 10.0

# State of the process, like the handlers of `logging`: a thread would not inherit a ContextVar.
_new_bar: "Callable[..., tqdm[NoReturn]] | None" = None

# C0 except tab and line feed, DEL, C1, and bidirectional controls, which reorder text. A surrogate stands for
# a byte of a line or a name that is not UTF-8, and cannot be written as UTF-8.
_CONTROL_CHARACTERS = (
    *(code for code in range(0x20) if chr(code) not in "\t\n"),
    *range(0x7F, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
    *range(0xD800, 0xE000),
)
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_VISIBLE = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROL_CHARACTERS}


def visible(text: str) -> str:
    r"""``text`` with control characters escaped, such as ``\x1b``, except tabs and line feeds.

    Lone surrogates, such as ``\udcff``, are escaped too, so the result can always be written as UTF-8.
    """
    return text.translate(_VISIBLE)


def one_line(text: str, max_length: int = 1000) -> str:
    """``text`` on one line, without control characters, and shortened if it is long."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as ``1 checkpoint`` or ``2,000 checkpoints``; the plural is an added s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(num_bytes: float) -> str:
    """A size such as ``12 KB``, ``45.1 MB`` or ``1.2 GB``, in powers of 1000."""
    for unit, name, digits in ((1e9, "GB", 1), (1e6, "MB", 1), (1e3, "KB", 0)):
        # From here on, the next smaller unit would be rounded up to 1,000.
        if num_bytes >= (0.99995 if unit > 1e6 else 0.9995) * unit:
            return f"{num_bytes / unit:,.{digits}f} {name}"
    return f"{num_bytes:.0f} B"


def aligned(rows: Sequence[Sequence[str]], *, num_texts: int | None = None) -> list[str]:
    """The rows as lines, with aligned columns.

    Args:
        rows: The cells of each row.
        num_texts: How many columns, from the first, are aligned left, the others right; None for all.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    num_texts = len(widths) if num_texts is None else num_texts
    return [
        "  ".join(
            f"{cell:<{width}}" if place < num_texts else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def format_seconds(seconds: float) -> str:
    """A time such as ``02:03`` or ``1:02:03``."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def origin_of_split(origin: str) -> str:
    """Where a split comes from, in words for the user: "carved" in ``corpus.json`` means held out."""
    return "held out" if origin == "carved" else origin


def in_precision(precision: str) -> str:
    """The note after scores that are not computed in float32, such as ", computed in bf16"."""
    return "" if precision == "float32" else f", computed in {precision}"


def markdown_text(text: str) -> str:
    """``text`` escaped for TensorBoard's Markdown, on one line."""
    on_one_line = visible(text.replace("\n", " ")).translate(_ENTITIES)
    return re.sub(r"[\\`*_\[\]()!|]", r"\\\g<0>", on_one_line)


def terminal_width() -> int | None:
    """The width in columns of the terminal on stderr; None if stderr is not a terminal, or has no size."""
    try:
        columns, lines = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):  # A file, a pipe, or a stream that has no descriptor.
        return None
    return columns if columns and lines else None


class ProgressLines:
    """Log lines in place of a bar: the progress of some work, and the time left. Short work logs none."""

    def __init__(self, total: int | None, *, unit: str, description: str, shown: bool = True) -> None:
        self._total, self._unit, self._description, self._is_shown = total, unit, description, shown
        self._done = 0
        self._started = self._newest_line = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._newest_line > self._started:
            taken = format_seconds(time.monotonic() - self._started)
            LOG.info("%s: %s %s in %s", self._description, f"{self._done:,}", self._unit, taken)

    def update(self, count: int = 1) -> None:
        """Count units that are done, and log a line if the last was ten seconds ago."""
        self._done += count
        now = time.monotonic()
        if not self._is_shown or now - self._newest_line < SECONDS_BETWEEN_LINES:
            return
        self._newest_line = now
        of = after = ""
        if self._total is not None and self._done:
            left = (now - self._started) / self._done * max(0, self._total - self._done)
            of, after = f" of {self._total:,}", f", {format_seconds(left)} left"
        LOG.info("%s: %s%s %s%s", self._description, f"{self._done:,}", of, self._unit, after)


def progress_bar(
    total: int | None, *, unit: str, description: str, shown: bool = True, delay_seconds: float = 0
) -> "tqdm[NoReturn] | ProgressLines":
    """A bar on stderr with the time left, removed when it is closed; without a terminal, log lines.

    Args:
        total: How many units there are; None if unknown.
        unit: What is counted, in the plural.
        description: What is being done, such as "translating".
        shown: False to show neither a bar nor log lines.
        delay_seconds: The bar appears after this time.
    """
    if not shown or _new_bar is None or terminal_width() is None:
        is_shown = shown and _new_bar is not None
        return ProgressLines(total, unit=unit, description=description, shown=is_shown)
    done = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} " + unit + " [{elapsed}, {remaining} left]"
    return _new_bar(
        total=total,
        desc=description,
        bar_format="{desc}: " + (done if total else "{n_fmt} " + unit + " [{elapsed}]"),
        delay=delay_seconds,
        dynamic_ncols=True,
        leave=False,
    )


@contextmanager
def waiting(description: str) -> Iterator[None]:
    """Show the elapsed seconds of work that cannot report its progress, and that lets other threads run."""
    ended = threading.Event()
    with progress_bar(None, unit="seconds", description=description) as bar:

        def tick() -> None:
            while not ended.wait(1.0):
                bar.update()

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def show_progress_bars(new_bar: "Callable[..., tqdm[NoReturn]]") -> None:
    """Draw progress bars from now on; ``new_bar`` is tqdm, or imports it first, which is slow."""
    global _new_bar
    _new_bar = new_bar


def show_only_errors() -> None:
    """From now on print nothing on the terminal and log only errors, as all processes but the first do."""
    global _new_bar
    _new_bar = None
    logger = logging.getLogger("mt")
    logger.setLevel(logging.ERROR)
    logger.handlers = []


def are_shown() -> bool:
    """Whether `show_progress_bars` was called."""
    return _new_bar is not None


def track(
    items: Iterable[T],
    description: str,
    *,
    unit: str,
    total: int | None = None,
    size: Callable[[T], int] | None = None,
    delay_seconds: float = 0,
) -> Iterator[T]:
    """The items, with a `progress_bar` that advances as they are consumed.

    ``total`` is the number of items by default, if that is known, and ``size`` of an item is one.
    """
    if total is None and size is None and isinstance(items, Sized):
        total = len(items)
    with progress_bar(total, unit=unit, description=description, delay_seconds=delay_seconds) as bar:
        for item in items:
            yield item
            bar.update(size(item) if size else 1)
