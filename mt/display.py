"""Output for people: untrusted text made harmless, counts, the width of the terminal, progress bars.

A library must not draw on the terminal of its user: there are no bars until the command line has called
`show_progress_bars`, and none if stderr is not a terminal.
"""

import html
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn, TypeVar

from tqdm import tqdm

T = TypeVar("T")

# State of the process, like the handlers of `logging`: a thread would not inherit a ContextVar.
_are_shown = False

# C0 except tab and line feed, DEL, C1, and bidirectional controls, which reorder text.
_CONTROL_CHARACTERS = (
    *(code for code in range(0x20) if chr(code) not in "\t\n"),
    *range(0x7F, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_VISIBLE = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROL_CHARACTERS}


def visible(text: str) -> str:
    r"""``text`` with control characters escaped, such as ``\x1b``, except tabs and line feeds."""
    return text.translate(_VISIBLE)


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as ``1 checkpoint`` or ``2,000 checkpoints``; the plural is an added s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def markdown_text(text: str) -> str:
    """``text`` escaped for TensorBoard's Markdown, on one line."""
    on_one_line = html.escape(visible(text.replace("\n", " ")), quote=False)
    return re.sub(r"[\\`*_\[\]()!|]", r"\\\g<0>", on_one_line)


def terminal_width() -> int | None:
    """The columns of the terminal that stderr is; None if it is not a terminal, or has no size."""
    try:
        columns, lines = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):  # A file, a pipe, or a stream that has no descriptor.
        return None
    return columns if columns and lines else None


def progress_bar(total: int | None, *, unit: str, shown: bool = True) -> "tqdm[NoReturn]":
    """A bar on stderr with the time left, removed when it is closed; no bar without a terminal.

    Args:
        total: How many units there are; None if unknown.
        unit: What is counted, in the plural.
        shown: False for no bar in any case.
    """
    done = "{n_fmt}/{total_fmt} " + unit + " [{elapsed}, {remaining} left]"
    return tqdm(
        total=total,
        disable=not (shown and _are_shown) or terminal_width() is None,
        bar_format="{percentage:3.0f}%|{bar}| " + done if total else "{n_fmt} " + unit + " [{elapsed}]",
        dynamic_ncols=True,
        leave=False,
    )


def show_progress_bars() -> None:
    """Draw bars from now on."""
    global _are_shown
    _are_shown = True


def are_shown() -> bool:
    """Whether `show_progress_bars` was called."""
    return _are_shown


def track(
    items: Iterable[T],
    description: str,
    *,
    unit: str,
    total: int | None = None,
    size: Callable[[T], int] | None = None,
    delay_seconds: float = 0,
) -> Iterable[T]:
    """The items, with a bar that advances as they are consumed, if bars are shown.

    Args:
        items: What is iterated over.
        description: What is being done, such as "encoding".
        unit: What is counted, in the plural.
        total: How many units there are; by default the number of items, if known.
        size: The number of units in an item; one by default.
        delay_seconds: The bar appears after this time.
    """
    if not _are_shown:
        return items
    bar = tqdm(
        items if size is None else (),
        total=total,
        desc=description,
        unit=f" {unit}",
        delay=delay_seconds,
        disable=terminal_width() is None,
        leave=False,
    )
    return bar if size is None else _advance(bar, items, size)


def _advance(bar: "tqdm[T]", items: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
    with bar:
        for item in items:
            yield item
            bar.update(size(item))
