"""Reading one file, or two parallel ones, as numbered sentence pairs: JSONL, JSON, CSV, TSV, parquet, text.

A row has its sentences in two columns, or in two fields of a column ``translation``.
"""

import csv
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mt.config.data import DataConfig
from mt.config.explain import did_you_mean
from mt.config.sources import Delimiter, are_positions, parse_columns
from mt.data.chunks import parts_of
from mt.data.sources.source import BadRow, NumberedPair, Part, listed
from mt.data.sources.text import MAX_LINE_BYTES, text_lines, unreadable
from mt.display import shown
from mt.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

LOG = logging.getLogger(__name__)

TABLE_FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
NESTED = "translation"
CHARACTERS: dict[Delimiter, str] = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}

# Of parquet, in which a few kilobytes may stand for a thousand rows of megabytes.
ROWS_AT_ONCE = 128
_MOST_ROWS_IN_CELLS = 5
# csv's own limit of 131,072 is too low for some corpora.
csv.field_size_limit(MAX_LINE_BYTES)

Row = Mapping[str, object]


def table_format(path: Path, delimiter: Delimiter = "auto") -> str | None:
    """The format by the name of a file, such as ``.jsonl`` for ``train.jsonl.gz``, or None.

    ``.txt`` is a format only if it is known what separates the columns.
    """
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    return suffix if suffix in TABLE_FORMATS or (suffix == ".txt" and delimiter != "auto") else None


def table_part(path: Path, config: DataConfig) -> Part:
    """A file that has a `table_format`, with the columns that ``config`` names."""
    unit, read = _FORMATS[str(table_format(path, config.delimiter))]
    return Part(shown(path), unit, partial(read, path, config), (path,))


def lines_part(path: Path) -> Part:
    """A text file of one side, which stands for the other until that is written."""

    def pairs() -> Iterator[NumberedPair]:
        for number, line in text_lines(path):
            yield number, line, line

    return Part(shown(path), "line", pairs, (path,))


def parallel_part(src_path: Path, tgt_path: Path) -> Part:
    """Two text files, where line n of one translates line n of the other."""
    pairs = partial(_parallel_pairs, src_path, tgt_path)
    return Part(f"{shown(src_path)} and {shown(tgt_path)}", "line", pairs, (src_path, tgt_path))


def columns_of(config: DataConfig) -> tuple[str, str]:
    """The source's and the target's column, named by ``data.columns`` or else like the languages.

    They are one if only that side is read (`find_sources`).
    """
    if config.columns and "," not in config.columns:
        return config.columns, config.columns
    return parse_columns(config.columns) if config.columns else (config.src, config.tgt)


def check_columns(names: Sequence[str], config: DataConfig, where: str, advice: str) -> None:
    """Check that ``names`` has both columns, each once; ``advice`` ends the error."""
    options = ("data.columns",) * 2 if config.columns else ("data.src", "data.tgt")
    src, tgt = columns_of(config)
    for option, name in zip(options, (src, tgt), strict=True):
        if name not in names:
            meant = " to the two that have the sentences"
            for outer in [field.removesuffix(src) for field in names if field.endswith(f".{src}")]:
                meant = f": {outer}{src},{outer}{tgt}"
            remedy = f" Set data.columns{meant}." if len(names) > 1 else ""
            raise DataError(
                f"{where} has no column {name!r}, which {option} names; its columns are {listed(names)}."
                f"{did_you_mean(name, names)}{remedy}{advice}"
            )
        if names.count(name) > 1:
            raise DataError(f"{where} has several columns {name!r}: rename all but one of them.")


def needed_columns(names: Sequence[str], config: DataConfig) -> list[str]:
    """The columns to read of a table whose columns have these ``names``; all of them if some are missing."""
    needed = []
    for column in columns_of(config):
        needed += [name for name in (column, column.partition(".")[0], NESTED) if name in names][:1]
    return [name for name in names if name in needed or len(needed) < 2]


def row_pairs(
    rows: Iterable[tuple[int, Row | BadRow]], config: DataConfig, where: str
) -> Iterator[NumberedPair]:
    """The sentence pairs of numbered rows. The first row with text must have both; missing text is None."""
    src, tgt = columns_of(config)
    are_checked = False
    for number, row in rows:
        if isinstance(row, BadRow):
            yield number, row, None
            continue
        fields = _fields(row)
        if not are_checked and row.get(NESTED, "") is not None:
            check_columns([*fields], config, where, _about_lists(fields, where))
            are_checked = True
        yield number, fields.get(src), fields.get(tgt)


def _fields(row: Row) -> dict[str, object]:
    """The columns of a row, the fields in them, such as ``text.en``, and those of `NESTED` as columns."""
    fields = dict(row)
    for name, value in row.items():
        if isinstance(value, Mapping):
            for key, field in _fields(value).items():
                fields[f"{name}.{key}"] = field
                if name == NESTED:
                    fields.setdefault(key, field)
    return fields


def _about_lists(row: Row, where: str) -> str:
    """What to do about a row that has lists, perhaps of all rows of the file."""
    lists = {name: value for name, value in row.items() if isinstance(value, list)}
    for name, value in lists.items():
        if value and isinstance(value[0], Mapping):
            return f" If its rows are in {name!r}, take them out: jq -c '.{name}[]' {where} > {where}l"
    return f" There are lists in {listed(lists)}: give each pair a row of its own." if lists else ""


def arrow_rows(batches: "Iterable[pa.Table | pa.RecordBatch]") -> Iterator[tuple[int, Row]]:
    """The rows of Arrow tables, numbered from 1."""
    parts = chain.from_iterable(map(parts_of, batches))
    return enumerate(chain.from_iterable(part.to_pylist() for part in parts), start=1)


def _parallel_pairs(src_path: Path, tgt_path: Path) -> Iterator[NumberedPair]:
    lines = zip_longest(
        *(text_lines(path, "sentences") for path in (src_path, tgt_path)), fillvalue=(0, None)
    )
    for number, ((_, src), (_, tgt)) in enumerate(lines, start=1):
        if src is None or tgt is None:
            longer = number + sum(1 for _ in lines)
            num_src, num_tgt = (number - 1, longer) if src is None else (longer, number - 1)
            numbers = f"{src_path} has {num_src:,} lines and {tgt_path} has {num_tgt:,}"
            raise DataError(f"{numbers}: line n of one must translate line n of the other.")
        yield number, src, tgt


def _json_pairs(path: Path, config: DataConfig) -> Iterator[NumberedPair]:
    return row_pairs(_json_rows(path, columns_of(config)), config, shown(path))


def _json_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Row | BadRow]]:
    """An object on each line, or one list of objects; what pandas writes by columns is neither."""
    first = _parsed(next((line for _, line in text_lines(path) if line.strip()), "{}"))
    whole = None
    if not isinstance(first, dict) or all(isinstance(first.get(name), dict | list) for name in columns):
        whole = _parsed(_whole_text(path))
    if isinstance(whole, dict):
        advice = _about_lists(whole, shown(path))
        raise DataError(
            f"{shown(path)} is one JSON object, not a list of rows: write it by rows, as pandas does with "
            f"orient='records'.{advice}"
        )
    if isinstance(whole, list):
        yield from enumerate(map(_object, whole), start=1)
        return
    for number, line in text_lines(path):
        if line.strip():
            yield number, _object(_parsed(line))


def _whole_text(path: Path) -> str:
    """All lines; nothing if they are too many to be read at once."""
    lines, num_characters = [], 0
    for _, line in text_lines(path):
        lines.append(line)
        num_characters += len(line)
        if num_characters > MAX_LINE_BYTES:
            return ""
    return "\n".join(lines)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadRow("the line is not complete JSON, as in a .jsonl file", str(error))


def _object(value: object) -> Row | BadRow:
    reason = 'the JSON is not an object such as {"en": "A sentence.", "de": "Ein Satz."}'
    return value if isinstance(value, dict | BadRow) else BadRow(reason, type(value).__name__)


def _parquet_pairs(path: Path, config: DataConfig) -> Iterator[NumberedPair]:
    # Only here, because importing it takes a third of the time in which a mistake in a text file is found.
    import pyarrow.parquet

    try:
        # Opened here, because pyarrow takes some names for addresses.
        with path.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as file:
            needed = needed_columns(file.schema_arrow.names, config)
            batches = file.iter_batches(batch_size=ROWS_AT_ONCE, columns=needed)
            yield from row_pairs(arrow_rows(batches), config, shown(path))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        raise unreadable(path, error) from None


def _delimited_pairs(path: Path, config: DataConfig, *, is_quoted: bool = False) -> Iterator[NumberedPair]:
    """The pairs of lines of cells; columns are named by the first line, or numbered. ``NA`` is text."""
    columns, delimiter = columns_of(config), config.delimiter
    are_numbers = config.columns is not None and are_positions(*columns)
    # A line that ends in \r\r\n may consist of a line end alone.
    begin = next((line for _, line in text_lines(path) if line.strip("\r")), "")
    # Excel's own line above the names.
    num_before = int(begin.strip('"').startswith("sep="))
    if delimiter == "auto":
        usual: Delimiter = "comma" if is_quoted else "tab"
        delimiter = usual if are_numbers and not num_before else _guess(begin, columns, usual)
    rows = _rows_of_cells(path, delimiter, is_quoted=is_quoted)
    begin_rows = [*islice(rows, num_before, num_before + 2)]
    if not begin_rows:
        return
    names = [cell.strip() for cell in begin_rows[0][1]]
    if are_numbers:
        names = [str(i + 1) for i in range(len(names))]
    check_columns(names, config, shown(path), _about_cells(begin, begin_rows[-1][1], columns, delimiter))
    src_index, tgt_index = map(names.index, columns)
    for number, row in chain(begin_rows if are_numbers else begin_rows[1:], rows):
        if len(row) != len(names):
            how_many = "fewer" if len(row) < len(names) else "more"
            detail = f"{len(row)} instead of {len(names)}"
            yield number, BadRow(f"there are {how_many} cells than in the first line", detail), None
        else:
            yield number, row[src_index], row[tgt_index]


def _about_cells(begin: str, cells: Sequence[str], columns: Sequence[str], delimiter: Delimiter) -> str:
    """What may help if the first line does not have the columns."""
    if any(cell.startswith("{") and columns[0] in cell and columns[1] in cell for cell in cells):
        return " A cell has both sides as one text: export the table as JSON lines or parquet."
    others = [name for name, character in CHARACTERS.items() if character in begin and name != delimiter]
    advice = ""
    if others:
        advice = f" The first line was split at each {delimiter}; data.delimiter may be {', '.join(others)}."
    if len(cells) > 1 and not are_positions(*columns):
        advice += " If the first line is already a pair, give numbers: data.columns: 1,2."
    return advice


def _guess(line: str, columns: Sequence[str], usual: Delimiter) -> Delimiter:
    """The delimiter that splits a header into both columns, or else into the most cells."""

    def quality(delimiter: Delimiter) -> tuple[bool, int]:
        cells = [cell.strip(' "') for cell in line.split(CHARACTERS[delimiter])]
        return set(cells).issuperset(columns), len(cells)

    return max([usual, *CHARACTERS], key=quality)


def _rows_of_cells(path: Path, delimiter: Delimiter, *, is_quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, with the number of its first line. A quotation mark is text unless quoted."""
    character, lines = CHARACTERS[delimiter], text_lines(path)
    if not is_quoted:
        yield from ((number, line.split(character)) for number, line in lines if line.strip("\r"))
        return
    # Strict, because csv otherwise lets a quotation mark that is never closed swallow the lines after it.
    reader = csv.reader((f"{text}\n" for _, text in lines), delimiter=character, strict=True)
    number = 1
    try:
        for cells in reader:
            # Lines within a cell are no rows, unless a quotation mark in the text has swallowed rows.
            inside = [line for cell in cells for line in cell.split("\n")[1:-1]]
            num_rows = sum(line.count(character) == len(cells) - 1 for line in inside)
            if num_rows > _MOST_ROWS_IN_CELLS and num_rows > len(inside) / 2:
                where = f"{shown(path)}, lines {number} to {reader.line_num}"
                LOG.warning(
                    "%s are one cell, but look like rows: if its quotation mark is text, double it.", where
                )
            if cells:
                yield number, cells
            number = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{shown(path)}, line {number}: the row that begins here is not valid CSV ({error}); "
            f"inside a quoted cell each quotation mark must be doubled. A .tsv file needs no quoting."
        ) from None


# Whether rows are lines, and what reads them.
_FORMATS: dict[str, tuple[Literal["line", "row"], Callable[[Path, DataConfig], Iterator[NumberedPair]]]] = {
    ".jsonl": ("line", _json_pairs),
    ".json": ("row", _json_pairs),
    ".csv": ("line", partial(_delimited_pairs, is_quoted=True)),
    ".tsv": ("line", _delimited_pairs),
    ".txt": ("line", _delimited_pairs),
    ".parquet": ("row", _parquet_pairs),
}
