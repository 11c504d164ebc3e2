"""Output for people: escaping untrusted text, counts and sizes, progress bars."""

import html
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.filesize import decimal

size = decimal
"""A number of bytes as people write it, such as ``45.1 MB``, in powers of 1000."""
T = TypeVar("T")

SECONDS_BETWEEN_LINES = 10.0

new_bar: Callable[..., Any] | None = None
"""tqdm, once the command line has set it: a library does not draw on its user's terminal."""

# C0 except tab and line feed, DEL, C1, bidirectional controls, and surrogates, which UTF-8 cannot hold.
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""``text`` with control characters and surrogates escaped, such as ``\x1b``."""
    return _HIDDEN.sub(lambda hidden: hidden[0].encode("unicode_escape").decode(), text)


def shown(path: object) -> str:
    r"""A path, or another name, on one line: as `visible`, with tabs and line breaks escaped as well."""
    return visible(str(path)).replace("\t", r"\t").replace("\n", r"\n")


def one_line(text: str, max_length: int = 1000) -> str:
    """``text`` on one line, without control characters, and shortened if it is long."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as ``1 checkpoint`` or ``2,000 checkpoints``; the plural is an added s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def aligned(rows: Sequence[Sequence[str]], *, num_texts: int | None = None) -> list[str]:
    """The rows as lines, with aligned columns: the first ``num_texts`` (None: all) left, the others right."""
    columns = []
    for number, cells in enumerate(zip(*rows, strict=True)):
        align = "<" if num_texts is None or number < num_texts else ">"
        columns.append([f"{cell:{align}{max(map(len, cells))}}" for cell in cells])
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def in_precision(precision: str) -> str:
    """The note after scores that are not computed in float32, such as ", computed in bf16"."""
    return "" if precision == "float32" else f", computed in {precision}"


def markdown_text(text: str) -> str:
    """``text`` escaped for TensorBoard's Markdown, on one line."""
    on_one_line = html.escape(visible(text.replace("\n", " ")), quote=False)
    return re.sub(r"[\\`*_\[\]()!|]", r"\\\g<0>", on_one_line)


@contextmanager
def progress(total: int | None, *, unit: str, description: str) -> Iterator[Callable[[int], object]]:
    """A bar on stderr that the yielded function advances; without a terminal, drawn every ten seconds."""
    if new_bar is None:
        yield lambda count: None
        return
    options: dict[str, Any] = {"dynamic_ncols": True}
    if not sys.stderr.isatty():
        options = {"delay": SECONDS_BETWEEN_LINES, "mininterval": SECONDS_BETWEEN_LINES, "smoothing": 0}
    with new_bar(total=total, desc=description, unit=f" {unit}", leave=False, **options) as drawn:
        yield drawn.update


def track(
    items: Iterable[T],
    description: str,
    *,
    unit: str,
    total: int | None = None,
    size: Callable[[T], int] | None = None,
) -> Iterator[T]:
    """The items, of which each advances a `progress` bar by its ``size``, or by one."""
    total = len(items) if total is None and isinstance(items, Sized) else total
    with progress(total, unit=unit, description=description) as advance:
        for item in items:
            yield item
            advance(size(item) if size else 1)
