"""What people see: text of unknown origin made harmless, the width of the terminal, progress bars."""

import html
import os
import re
import sys
from typing import NoReturn

from tqdm import tqdm

# All but tab and line feed: C0, DEL, C1, and what reorders the text around it (bidirectional embeddings,
# overrides and isolates).
_CONTROL_CHARACTERS = (
    *(code for code in range(0x20) if chr(code) not in "\t\n"),
    *range(0x7F, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_VISIBLE = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _CONTROL_CHARACTERS}


def visible(text: str) -> str:
    r"""``text`` with control characters written out, such as ``\x1b``; tabs and line feeds stay."""
    return text.translate(_VISIBLE)


def markdown_text(text: str) -> str:
    """``text`` such that TensorBoard's Markdown shows it as it is, on one line."""
    on_one_line = html.escape(visible(text.replace("\n", " ")), quote=False)
    return re.sub(r"[\\`*_\[\]()!|]", r"\\\g<0>", on_one_line)


def terminal_width() -> int | None:
    """Columns of the terminal that stderr is; None where it is none, or one of no size."""
    try:
        columns, lines = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):  # A file, a pipe, or a stream that has no descriptor.
        return None
    return columns if columns and lines else None


def progress_bar(total: int | None, *, unit: str, shown: bool = True) -> "tqdm[NoReturn]":
    """A bar on stderr with the time left, which is removed when it is closed; none without a terminal.

    Args:
        total: How many there are to do; None where nobody knows.
        unit: What is counted, in the plural.
        shown: False for no bar in any case.
    """
    done = "{n_fmt}/{total_fmt} " + unit + " [{elapsed}, {remaining} left]"
    return tqdm(
        total=total,
        disable=not shown or terminal_width() is None,
        bar_format="{percentage:3.0f}%|{bar}| " + done if total else "{n_fmt} " + unit + " [{elapsed}]",
        dynamic_ncols=True,
        leave=False,
    )
