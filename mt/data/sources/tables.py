"""Sentence pairs from rows: columns found by name or by number, in tables and in delimited text.

A row is ``{"en": .., "de": ..}`` or ``{"translation": {"en": .., "de": ..}}``. In delimited text, a ``.csv``
file may quote its cells; in any other file a quotation mark is text. Empty lines between rows are skipped.
"""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Self

import pyarrow as pa

from mt.config.data import DataConfig
from mt.config.sources import DELIMITERS, Delimiter, are_positions, parse_columns
from mt.data.sources.source import NumberedPair, did_you_mean, listed
from mt.errors import DataError

NESTED = "translation"
CHARACTERS: dict[Delimiter, str] = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
CHOICES = ", ".join(DELIMITERS[1:-1]) + f" or {DELIMITERS[-1]}"

Row = Mapping[str, object]


@dataclass(frozen=True)
class Columns:
    """The columns of source and target, by name or, in a file without a header, by number.

    Attributes:
        src: The source's column.
        tgt: The target's column.
        options: The options that name the two.
        languages: The source and the target language.
    """

    src: str
    tgt: str
    options: tuple[str, str]
    languages: tuple[str, str]

    @classmethod
    def of(cls, config: DataConfig) -> Self:
        """The columns of ``data.columns``, or else those named like the languages."""
        languages = config.src, config.tgt
        if config.columns is None:
            return cls(*languages, ("data.src", "data.tgt"), languages)
        return cls(*parse_columns(config.columns), ("data.columns", "data.columns"), languages)

    @property
    def are_positions(self) -> bool:
        """Whether they are numbers; a language is a name, whatever it is called."""
        return self.options[0] == "data.columns" and are_positions(self.src, self.tgt)


def check_columns(found: Sequence[str], columns: Columns, where: str, advice: str = "") -> None:
    """Raise `DataError`, with ``advice`` at its end, unless ``columns`` are among those that were found."""
    for option, name in zip(columns.options, (columns.src, columns.tgt), strict=True):
        if name not in found:
            names = (
                " Set data.columns if they have other names."
                if option != "data.columns" and len(found) > 1
                else ""
            )
            raise DataError(
                f"{where} has no column {name!r}, which {option} names; "
                f"its columns are {listed(found)}.{did_you_mean(name, found)}{names}{advice}"
            )
        if found.count(name) > 1:
            raise DataError(f"{where} has several columns {name!r}: rename all but one of them.")


def refuse_repeated_columns(schema: pa.Schema, columns: Columns, where: str) -> None:
    """Raise `DataError` if several columns have a name that is needed: a row could only have one of them."""
    names = schema.names
    if columns.src not in names:
        # Then the columns may be those of NESTED.
        nested = [field.type for field in schema if field.name == NESTED and pa.types.is_struct(field.type)]
        names = [*names, *(inner.name for struct in nested for inner in struct)]
    for name in (columns.src, columns.tgt, NESTED):
        if names.count(name) > 1:
            raise DataError(f"{where} has several columns {name!r}: rename all but one of them.")


def needed_columns(found: Sequence[str], columns: Columns, where: str) -> list[str]:
    """The columns to read."""
    if NESTED in found and columns.src not in found:
        return [NESTED]
    check_columns(found, columns, where)
    return [columns.src, columns.tgt]


def row_pairs(rows: Iterable[tuple[int, Row]], columns: Columns, where: str) -> Iterator[NumberedPair]:
    """The sentence pairs of numbered rows. The first row with text sets the shape; missing text is None."""
    src, tgt = columns.src, columns.tgt
    nested: bool | None = None
    for number, row in rows:
        if nested is None:
            if src not in row and NESTED in row and row[NESTED] is None:
                # This row does not show where the sentences are; a later one will.
                yield number, None, None
                continue
            inner = row.get(NESTED)
            nested = src not in row and isinstance(inner, Mapping)
            check_columns(list(inner if nested and isinstance(inner, Mapping) else row), columns, where)
        if nested:
            inner = row.get(NESTED)
            row = inner if isinstance(inner, Mapping) else {}
        yield number, row.get(src), row.get(tgt)


def arrow_rows(batches: Iterable[pa.Table | pa.RecordBatch], where: str) -> Iterator[tuple[int, Row]]:
    """The rows of Arrow tables, numbered from 1.

    Only now does Arrow notice a text that is not UTF-8, or a value beyond what Python can represent.
    """
    number = 0
    for batch in batches:
        try:
            rows = batch.to_pylist()
        except (ValueError, OverflowError) as error:
            broken = next(i for i in range(len(batch)) if not _is_readable(batch.slice(i, 1)))
            what = (
                "the text is not UTF-8. Write the corpus again as UTF-8."
                if isinstance(error, UnicodeDecodeError)
                else f"this is not text ({error}). Name two columns of text."
            )
            raise DataError(f"{where}, row {number + broken + 1}: {what}") from None
        for row in rows:
            number += 1
            yield number, row


def _is_readable(batch: pa.Table | pa.RecordBatch) -> bool:
    try:
        batch.to_pylist()
    except (ValueError, OverflowError):
        return False
    return True


def delimited_pairs(
    lines: Iterator[tuple[int, str]], path: Path, columns: Columns, delimiter: Delimiter, *, is_quoted: bool
) -> Iterator[NumberedPair]:
    """The pairs of a file. Named columns are found by its first line; cells such as ``NA`` are text."""
    begin = next((numbered for numbered in lines if _has_cells(numbered[1])), None)
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
                f"quote cells that contain a {delimiter}"
                if is_quoted
                else f"remove the {delimiter}s from the text"
            )
            raise DataError(
                f"{path}, line {number}: found {_cells(len(cells))}, but the first line {has} "
                f"{len(first[1])} columns; {advice}, so that no pair is misaligned."
            )
        yield number, cells[src_index], cells[tgt_index]


def _has_cells(line: str) -> bool:
    r"""Whether a line is a row: one that ends in ``\r\r\n`` may consist of a line end alone."""
    return bool(line.strip("\r"))


def _guess(line: str, columns: Columns, *, is_quoted: bool) -> Delimiter:
    """The delimiter that splits the header ``line`` into both columns, or the usual one of the format."""
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
    """The positions of the source and target cells in a row."""
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
            f"{path}, line {number}: data.columns asks for column {max(indices) + 1}, but there "
            f"{'is' if len(cells) == 1 else 'are'} {_cells(len(cells))}, split at each {delimiter}: "
            f"{listed(cells, most=5)}. If something else separates them, set data.delimiter: {CHOICES}."
        )
    found = [cells[index].strip().lower() for index in indices]
    if sorted(found) == sorted(language.lower() for language in columns.languages):
        raise DataError(
            f"{path}, line {number} names the columns {listed(found)}, so it is not a pair: leave out "
            "data.columns, whose numbers are for files without such a line."
        )
    return indices


def _without_header(names: Sequence[str], delimiter: Delimiter) -> str:
    if len(names) > 1:
        return " If the first line is already a pair, give numbers: data.columns: 1,2."
    return f" It was split at each {delimiter}; data.delimiter may also be {CHOICES}."


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number} cells"


def _quoted_rows(
    lines: Iterable[tuple[int, str]], path: Path, delimiter: Delimiter
) -> Iterator[tuple[int, list[str]]]:
    began = 0  # The first line of the row that is being read, which may have several.

    def numbered() -> Iterator[str]:
        nonlocal began
        for number, line in lines:
            began = began or number
            yield line + "\n"

    # Strict, because csv otherwise lets a quotation mark that is never closed swallow the lines after it.
    reader = csv.reader(numbered(), delimiter=CHARACTERS[delimiter], strict=True)
    try:
        for cells in reader:
            if cells:
                yield began, cells
            began = 0
    except csv.Error as error:
        raise DataError(
            f"{path}, line {began}: the row that begins here is not valid CSV ({error}); "
            f"inside a quoted cell each quotation mark must be doubled. A .tsv file needs no quoting."
        ) from None


def _plain_rows(lines: Iterable[tuple[int, str]], delimiter: Delimiter) -> Iterator[tuple[int, list[str]]]:
    character = CHARACTERS[delimiter]
    return ((number, line.split(character)) for number, line in lines if _has_cells(line))
