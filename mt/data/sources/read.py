"""Reading one file, or two parallel ones, as numbered sentence pairs: JSONL, JSON, CSV, TSV, parquet, text.

A row has its sentences in two columns, or in two fields of a column ``translation``.
"""

import csv
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from mt.config.data import DataConfig
from mt.config.sources import Delimiter, are_positions, parse_columns
from mt.data.chunks import parts_of
from mt.data.sources.source import BadRow, NumberedPair, Part, did_you_mean, listed
from mt.data.sources.text import MAX_LINE_BYTES, check_is_file, text_lines, unreadable
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
    kind = table_format(path, config.delimiter)

    def pairs() -> Iterator[NumberedPair]:
        if kind == ".parquet":
            return row_pairs(_parquet_rows(path, config), config, shown(path))
        if kind in (".json", ".jsonl"):
            return row_pairs(_json_rows(path, config), config, shown(path))
        return _delimited_pairs(path, config, is_quoted=kind == ".csv")

    return Part(shown(path), "row" if kind in (".json", ".parquet") else "line", pairs, (path,))


def parallel_part(src_path: Path, tgt_path: Path) -> Part:
    """Two text files, where line n of one translates line n of the other."""
    for path in (src_path, tgt_path):
        check_is_file(path)
    pairs = partial(_parallel_pairs, src_path, tgt_path)
    return Part(f"{shown(src_path)} and {shown(tgt_path)}", "line", pairs, (src_path, tgt_path))


def columns_of(config: DataConfig) -> tuple[str, str]:
    """The source's and the target's column, named by ``data.columns`` or else like the languages."""
    return parse_columns(config.columns) if config.columns else (config.src, config.tgt)


def find_columns(names: Sequence[str], config: DataConfig, where: str, advice: str = "") -> tuple[str, str]:
    """Both columns, or their fields in `NESTED`, if ``names`` has each once; ``advice`` ends the error."""
    options = ("data.columns",) * 2 if config.columns else ("data.src", "data.tgt")
    columns = columns_of(config)
    prefix = f"{NESTED}."
    if columns[0] in names or not any(name.startswith(prefix) for name in names):
        prefix = ""
    names = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    known = set(names)
    for option, name in zip(options, columns, strict=True):
        if name not in names:
            nested = [[field.removesuffix(name) + column for column in columns] for field in names]
            meant = next((",".join(both) for both in nested if known.issuperset(both)), None)
            meant = f": {meant}" if meant else " to the two that have the sentences"
            remedy = f" Set data.columns{meant}." if len(names) > 1 else ""
            raise DataError(
                f"{where} has no column {name!r}, which {option} names; its columns are {listed(names)}."
                f"{did_you_mean(name, names)}{remedy}{advice}"
            )
        if names.count(name) > 1:
            raise DataError(f"{where} has several columns {name!r}: rename all but one of them.")
    return prefix + columns[0], prefix + columns[1]


def needed_columns(names: Sequence[str], config: DataConfig) -> list[str]:
    """The columns to read of a table whose columns have these ``names``; all of them if some are missing."""
    candidates = ((name, name.partition(".")[0], NESTED) for name in columns_of(config))
    needed = [next((name for name in several if name in names), None) for several in candidates]
    return [*names] if None in needed else [name for name in names if name in needed]


def row_pairs(
    rows: Iterable[tuple[int, Row | BadRow]], config: DataConfig, where: str
) -> Iterator[NumberedPair]:
    """The sentence pairs of numbered rows. The first row with text sets the shape; missing text is None."""
    src, tgt = columns_of(config)
    are_known = False
    for number, row in rows:
        if isinstance(row, BadRow):
            yield number, row, None
            continue
        fields = _fields(row)
        if not are_known and (src in fields or row.get(NESTED, "") is not None):
            src, tgt = find_columns([*fields], config, where, _about_lists(fields, where))
            are_known = True
        yield number, fields.get(src), fields.get(tgt)


def _fields(row: Row) -> dict[str, object]:
    """The columns of a row, and the fields in them, such as ``text.en``."""
    fields = dict(row)
    for name, value in row.items():
        if isinstance(value, Mapping):
            fields |= {f"{name}.{key}": field for key, field in _fields(value).items()}
    return fields


def _about_lists(row: Row, where: str) -> str:
    """What to do about a row that has lists, perhaps of all rows of the file."""
    lists = {name: value for name, value in row.items() if isinstance(value, list)}
    for name, value in lists.items():
        if value and isinstance(value[0], Mapping):
            return f" If its rows are in {name!r}, take them out: jq -c '.{name}[]' {where} > {where}l"
    return f" There are lists in {listed(lists)}: give each pair a row of its own." if lists else ""


def arrow_rows(batches: "Iterable[pa.Table | pa.RecordBatch]") -> Iterator[tuple[int, Row | BadRow]]:
    """The rows of Arrow tables, numbered from 1."""
    parts = chain.from_iterable(map(parts_of, batches))
    return enumerate(chain.from_iterable(map(_python_rows, parts)), start=1)


def _python_rows(batch: "pa.Table | pa.RecordBatch") -> list[Row | BadRow]:
    """The rows as dicts; only now does Arrow notice a text that is not UTF-8, or a date beyond Python's."""
    try:
        return [*batch.to_pylist()]
    except (ValueError, OverflowError) as error:
        if len(batch) == 1:
            return [BadRow("the text is not UTF-8", str(error))]
        return [row for i in range(len(batch)) for row in _python_rows(batch.slice(i, 1))]


def _parallel_pairs(src_path: Path, tgt_path: Path) -> Iterator[NumberedPair]:
    lines = zip_longest(
        *(text_lines(path, "sentences") for path in (src_path, tgt_path)), fillvalue=(0, None)
    )
    for number, ((_, src), (_, tgt)) in enumerate(lines, start=1):
        if src is None or tgt is None:
            longer = number + sum(1 for _ in lines)
            num_src, num_tgt = (number - 1, longer) if src is None else (longer, number - 1)
            raise DataError(
                f"{src_path} has {num_src:,} lines and {tgt_path} has {num_tgt:,}: line n of one must "
                "translate line n of the other, so both must have the same number of lines."
            )
        yield number, src, tgt


def _json_rows(path: Path, config: DataConfig) -> Iterator[tuple[int, Row | BadRow]]:
    """An object on each line, or one list of objects."""
    begin = [*islice((line for _, line in text_lines(path) if line.strip()), 2)]
    first = _parsed(begin[0]) if begin else {}
    if len(begin) == 1:
        _check_has_rows(first, columns_of(config), path)
    if not isinstance(first, dict) and (rows := _whole(path, config)) is not None:
        yield from enumerate(map(_object, rows), start=1)
        return
    for number, line in text_lines(path):
        if line.strip():
            yield number, _object(_parsed(line))


def _whole(path: Path, config: DataConfig) -> list[object] | None:
    """The list that all lines are together; None if they are no list, or too many."""
    lines, num_characters = [], 0
    for _, line in text_lines(path):
        lines.append(line)
        num_characters += len(line)
        if num_characters > MAX_LINE_BYTES:
            return None
    value = _parsed("\n".join(lines))
    if isinstance(value, dict):
        _check_has_rows(value, columns_of(config), path)
        advice = _about_lists(value, shown(path))
        raise DataError(f"{shown(path)} is one JSON object, not a list of rows.{advice}")
    return value if isinstance(value, list) else None


def _check_has_rows(value: object, columns: tuple[str, str], path: Path) -> None:
    """Refuse an object that has a list, or an object, for each column, as pandas writes it."""
    inside = {f'."{name}"': field for name, field in value.items()} if isinstance(value, dict) else {}
    for place, table in {".": value, **inside}.items():
        if isinstance(table, dict) and all(isinstance(table.get(name), dict | list) for name in columns):
            src, tgt = columns
            program = f'[[."{src}"[]], [."{tgt}"[]]] | transpose[] | {{"{src}": .[0], "{tgt}": .[1]}}'
            file = quote(shown(path))
            raise DataError(
                f"{shown(path)} has columns, not rows. Write it by rows, with pandas as orient='records', or "
                f"with jq -c '{place} | {program}' {file} > {file}l."
            )


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadRow("the line is not complete JSON, as in a .jsonl file", str(error))


def _object(value: object) -> Row | BadRow:
    reason = 'the JSON is not an object such as {"en": "A sentence.", "de": "Ein Satz."}'
    return value if isinstance(value, dict | BadRow) else BadRow(reason, type(value).__name__)


def _parquet_rows(path: Path, config: DataConfig) -> Iterator[tuple[int, Row | BadRow]]:
    # Only here, because importing it takes a third of the time in which a mistake in a text file is found.
    import pyarrow.parquet

    try:
        # Opened here, because pyarrow takes some names for addresses.
        with path.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as file:
            needed = needed_columns(file.schema_arrow.names, config)
            yield from arrow_rows(file.iter_batches(batch_size=ROWS_AT_ONCE, columns=needed))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{shown(path)}: the name of a column is not UTF-8 ({error}). Write the table again."
        ) from None
    except (pyarrow.ArrowException, OSError) as error:
        raise unreadable(path, error) from None


def _delimited_pairs(path: Path, config: DataConfig, *, is_quoted: bool) -> Iterator[NumberedPair]:
    """The pairs of lines of cells; columns are named by the first line, or numbered. ``NA`` is text."""
    columns = columns_of(config)
    # A line that ends in \r\r\n may consist of a line end alone.
    begin = next((line for _, line in text_lines(path) if line.strip("\r")), "")
    are_numbers = config.columns is not None and are_positions(*columns)
    delimiter = config.delimiter
    # Excel's own line above the names.
    named = [name for name, character in CHARACTERS.items() if begin.strip('"') == f"sep={character}"]
    if named:
        delimiter = named[0]
    elif delimiter == "auto":
        usual: Delimiter = "comma" if is_quoted else "tab"
        delimiter = usual if are_numbers else _guess(begin, columns, usual)
    rows = _rows_of_cells(path, delimiter, is_quoted=is_quoted)
    begin_rows = [*islice(rows, len(named), len(named) + 2)]
    if not begin_rows:
        return
    names = [cell.strip() for cell in begin_rows[0][1]]
    advice = ""
    begins = [cell for cell in begin_rows[-1][1] if cell.startswith("{")]
    if any(columns[0] in cell and columns[1] in cell for cell in begins):
        advice = " A cell has both sides as one text: export the table as JSON lines or parquet."
    others = [name for name, character in CHARACTERS.items() if character in begin and name != delimiter]
    if others:
        advice += f" The first line was split at each {delimiter}; data.delimiter may be {', '.join(others)}."
    if are_numbers:
        names = [str(i + 1) for i in range(len(names))]
    elif len(names) > 1:
        advice += " If the first line is already a pair, give numbers: data.columns: 1,2."
    src_index, tgt_index = map(names.index, find_columns(names, config, shown(path), advice))
    for number, row in chain(begin_rows if are_numbers else begin_rows[1:], rows):
        if len(row) != len(names):
            how_many = "fewer" if len(row) < len(names) else "more"
            detail = f"{len(row)} instead of {len(names)}"
            yield number, BadRow(f"there are {how_many} cells than in the first line", detail), None
        else:
            yield number, row[src_index], row[tgt_index]


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
