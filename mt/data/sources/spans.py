"""Text files in spans of whole lines, so that several processes can read one file."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_NEWLINE = ord("\n")


class Span(NamedTuple):
    """Consecutive lines of a text file.

    Attributes:
        start: Position of the first byte.
        end: Position after the last byte; None for the end of the file.
        first_line: Number of the first line, counted from 1 in the whole file.
    """

    start: int
    end: int | None
    first_line: int


WHOLE = Span(0, None, 1)


def spans(path: Path, num_bytes: int) -> Iterator[Span]:
    """The whole file in spans of about ``num_bytes``; a longer line is in one span."""
    start, first_line = 0, 1
    # What cannot be read here is reported when the last span is read.
    with contextlib.suppress(OSError):
        for ends in _line_ends(path, num_bytes):
            if len(ends):
                yield Span(start, int(ends[-1]), first_line)
                start, first_line = int(ends[-1]), first_line + len(ends)
    yield Span(start, None, first_line)


def parallel_spans(src_path: Path, tgt_path: Path, num_bytes: int) -> Iterator[tuple[Span, Span]]:
    """Two files in spans of equally many lines, of about ``num_bytes`` of the first file each.

    The last two spans have all that is left, and differ in their number of lines if the files do.
    """
    src_start, tgt_start, first_line = 0, 0, 1
    with contextlib.suppress(OSError):
        tgt_blocks = _line_ends(tgt_path, num_bytes)
        tgt_ends = np.empty(0, dtype=np.int64)
        for src_ends in _line_ends(src_path, num_bytes):
            num_lines = len(src_ends)
            if not num_lines:
                continue
            while len(tgt_ends) < num_lines and (more := next(tgt_blocks, None)) is not None:
                tgt_ends = np.concatenate([tgt_ends, more])
            if len(tgt_ends) < num_lines:
                break
            src_end, tgt_end = int(src_ends[-1]), int(tgt_ends[num_lines - 1])
            yield Span(src_start, src_end, first_line), Span(tgt_start, tgt_end, first_line)
            src_start, tgt_start, first_line = src_end, tgt_end, first_line + num_lines
            tgt_ends = tgt_ends[num_lines:]
    yield Span(src_start, None, first_line), Span(tgt_start, None, first_line)


def _line_ends(path: Path, num_bytes: int) -> Iterator[npt.NDArray[np.int64]]:
    """For each ``num_bytes`` of a file, the positions after the newlines in them."""
    position = 0
    with path.open("rb") as file:
        while block := file.read(num_bytes):
            yield position + 1 + np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
            position += len(block)
