"""Delimited text: the rows of a CSV or TSV file, with a header line or without, as numbered sentence pairs.

A ``.csv`` file has its quoting; any other has none, so that a quotation mark in it is text. Empty lines
between rows are no rows.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from mt.config.columns import DELIMITERS, Delimiter
from mt.data.sources.rows import Columns, check_columns
from mt.data.sources.source import NumberedPair, listed
from mt.errors import DataError

CHARACTERS: dict[Delimiter, str] = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
CHOICES = ", ".join(DELIMITERS[1:-1]) + f" or {DELIMITERS[-1]}"


def delimited_pairs(
    lines: Iterator[tuple[int, str]], path: Path, columns: Columns, delimiter: Delimiter, *, is_quoted: bool
) -> Iterator[NumberedPair]:
    """The pairs of a file. Columns that are named are found by its first line; cells such as ``NA`` are text.

    Raises:
        DataError: If the columns are not there, or a row has more or fewer cells than the first.
    """
    begin = next(((number, line) for number, line in lines if line), None)
    if begin is None:
        return
    if delimiter == "auto":
        delimiter = _guess(begin[1], columns, is_quoted=is_quoted)
    all_lines = chain([begin], lines)
    rows = _quoted_rows(all_lines, path, delimiter) if is_quoted else _plain_rows(all_lines, delimiter)
    first = next(rows)
    src_index, tgt_index = _indices(first, path, columns, delimiter)
    for number, cells in chain([first] if columns.are_positions else [], rows):
        if len(cells) != len(first[1]):
            has = "has" if columns.are_positions else "names"
            advice = (
                f"quote cells that hold a {delimiter}"
                if is_quoted
                else f"take the {delimiter}s out of the text"
            )
            raise DataError(
                f"{path}, line {number}: found {_cells(len(cells))} where the first line {has} "
                f"{len(first[1])} columns; {advice}, so that no pair is misaligned."
            )
        yield number, cells[src_index], cells[tgt_index]


def _guess(line: str, columns: Columns, *, is_quoted: bool) -> Delimiter:
    """The delimiter by which the header ``line`` has both columns, or the usual one of the format."""
    usual: Delimiter = "comma" if is_quoted else "tab"
    if columns.are_positions:
        return usual
    split = {usual: _split(line, usual, is_quoted=is_quoted)}
    split |= {other: _split(line, other, is_quoted=is_quoted) for other in CHARACTERS}
    for delimiter, cells in split.items():
        if columns.src in cells and columns.tgt in cells:
            return delimiter
    return max(split, key=lambda delimiter: len(split[delimiter]))


def _split(line: str, delimiter: Delimiter, *, is_quoted: bool) -> list[str]:
    if not is_quoted:
        return _header(line.split(CHARACTERS[delimiter]))
    try:
        return _header(next(csv.reader([line], delimiter=CHARACTERS[delimiter])))
    except csv.Error:
        return []


def _header(cells: Sequence[str]) -> list[str]:
    return [cell.strip() for cell in cells]


def _indices(
    first: tuple[int, list[str]], path: Path, columns: Columns, delimiter: Delimiter
) -> tuple[int, int]:
    """Where the cells of source and target are in a row.

    Raises:
        DataError: If the columns are not there, or are numbered where the first line names them.
    """
    number, cells = first
    if not columns.are_positions:
        names = _header(cells)
        check_columns(
            names,
            columns,
            f"{path}, whose first line must name the columns,",
            _without_header(names, delimiter),
        )
        return names.index(columns.src), names.index(columns.tgt)
    indices = int(columns.src) - 1, int(columns.tgt) - 1
    if max(indices) >= len(cells):
        raise DataError(
            f"{path}, line {number}: data.columns asks for column {max(indices) + 1}, and there "
            f"{'is' if len(cells) == 1 else 'are'} {_cells(len(cells))}, split at each {delimiter}: "
            f"{listed(cells, most=5)}. Where something else separates them, set data.delimiter: {CHOICES}."
        )
    found = [cells[index].strip().lower() for index in indices]
    if sorted(found) == sorted(language.lower() for language in columns.languages):
        raise DataError(
            f"{path}, line {number} names the columns {listed(found)}, so it is no pair: leave data.columns "
            "out, whose numbers are for files without such a line."
        )
    return indices


def _without_header(names: Sequence[str], delimiter: Delimiter) -> str:
    if len(names) > 1:
        return " If the first line is a pair already, give numbers: data.columns: 1,2."
    return f" It was split at each {delimiter}; data.delimiter may also be {CHOICES}."


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number} cells"


def _quoted_rows(
    lines: Iterable[tuple[int, str]], path: Path, delimiter: Delimiter
) -> Iterator[tuple[int, list[str]]]:
    number = 0

    def numbered() -> Iterator[str]:
        nonlocal number
        for number, line in lines:  # noqa: B007, for the reader may take several lines for one row
            yield line + "\n"

    # Strict, because csv otherwise lets a quotation mark that is never closed swallow the lines after it.
    reader = csv.reader(numbered(), delimiter=CHARACTERS[delimiter], strict=True)
    try:
        for cells in reader:
            if cells:
                yield number, cells
    except csv.Error as error:
        raise DataError(
            f"{path}, line {number}: this is no sound CSV ({error}); "
            f"inside a quoted cell each quotation mark must be doubled. A .tsv file needs no quoting."
        ) from None


def _plain_rows(lines: Iterable[tuple[int, str]], delimiter: Delimiter) -> Iterator[tuple[int, list[str]]]:
    character = CHARACTERS[delimiter]
    return ((number, line.split(character)) for number, line in lines if line)
