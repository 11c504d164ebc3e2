r"""Reading one file, or two parallel ones, as numbered sentence pairs: JSONL, JSON, CSV, TSV, parquet, text.

Lines end with ``\n`` or ``\r\n`` and nowhere else: `str.splitlines` would also split at U+2028 and the
like, and so misalign parallel files. All text is UTF-8, with or without a byte order mark. A CSV file has its
quoting; a TSV file has none, so that a quotation mark in it is text. Empty lines between rows are no rows.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet

from mt.data.cache import file_digest
from mt.data.sources.rows import Row, arrow_rows, check_columns, needed_columns, row_pairs
from mt.data.sources.source import NumberedPair, Part
from mt.errors import DataError

TABLE_FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
BYTE_ORDER_MARK = "\ufeff"

# What has to be in memory at once: a line, or the one list of a .json file. Without a limit, a few megabytes
# of gzip that unpack to one line of many gigabytes would take all of the memory.
MAX_LINE_BYTES = 2**28
# csv's own limit of 131,072 is shorter than what a corpus may hold.
csv.field_size_limit(MAX_LINE_BYTES)


def table_format(path: Path) -> str | None:
    """The format that the name of a file tells (``.jsonl`` of ``train.jsonl.gz``), or None."""
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix not in TABLE_FORMATS or (suffix == ".parquet" and path.name.lower().endswith(".gz")):
        return None
    return suffix


def table_part(path: Path, src: str, tgt: str) -> Part:
    """A file of one of `TABLE_FORMATS` with the columns ``src`` and ``tgt``."""
    where = str(path)
    unit: Literal["line", "row"]
    pairs: Iterable[NumberedPair]
    match table_format(path):
        case ".jsonl":
            unit, pairs = "line", row_pairs(_jsonl_rows(text_lines(path), path), src, tgt, where)
        case ".json":
            unit, pairs = "row", row_pairs(_json_rows(path), src, tgt, where)
        case ".parquet":
            unit, pairs = "row", row_pairs(_parquet_rows(path, src, tgt), src, tgt, where)
        case kind:
            unit, pairs = "line", _separated_pairs(path, src, tgt, "," if kind == ".csv" else "\t")
    return Part(where, unit, pairs, lambda: file_digest(path))


def parallel_part(src_path: Path, tgt_path: Path) -> Part:
    """Two text files, where line n of one translates line n of the other."""
    pairs = _parallel_pairs(src_path, tgt_path)
    return Part(
        f"{src_path} and {tgt_path}", "line", pairs, lambda: file_digest(src_path) + file_digest(tgt_path)
    )


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, numbered from 1, without their ends; ``.gz`` is unpacked.

    Raises:
        DataError: If the file cannot be read, its packing is damaged, or a line is too long or not UTF-8.
    """
    number = 0
    try:
        with _open(path) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                if len(raw) > MAX_LINE_BYTES:
                    raise _too_long(f"{path}, line {number + 1}")
                line = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
                number += 1
                yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number + 1}: byte {error.start + 1} (0x{error.object[error.start]:02x}) is not "
            f"UTF-8. If you know the encoding, convert the file: iconv -f ENCODING -t UTF-8."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is no sound gzip file ({error}): fetch or pack it again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def _too_long(what: str) -> DataError:
    return DataError(
        f"{what} is longer than {MAX_LINE_BYTES:,} bytes, which are too many to read at once. "
        "Give each pair a line of its own, as .jsonl does."
    )


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")


def _parallel_pairs(src_path: Path, tgt_path: Path) -> Iterator[NumberedPair]:
    src_lines, tgt_lines = text_lines(src_path), text_lines(tgt_path)
    number = 0
    for number, src in src_lines:
        tgt = next(tgt_lines, None)
        if tgt is None:
            raise _unequal(src_path, number + sum(1 for _ in src_lines), tgt_path, number - 1)
        yield number, src, tgt[1]
    if num_left := sum(1 for _ in tgt_lines):
        raise _unequal(src_path, number, tgt_path, number + num_left)


def _unequal(src_path: Path, num_src_lines: int, tgt_path: Path, num_tgt_lines: int) -> DataError:
    return DataError(
        f"{src_path} has {num_src_lines:,} lines and {tgt_path} has {num_tgt_lines:,}: "
        f"line n of one must translate line n of the other, so the two must have equally many."
    )


def _jsonl_rows(lines: Iterable[tuple[int, str]], path: Path) -> Iterator[tuple[int, Row]]:
    for number, line in lines:
        if line.strip():
            where = f"{path}, line {number}"
            yield number, _object(_parse(line, where), where)


def _json_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """The objects of one JSON list; a file that does not begin with ``[`` is read as JSONL."""
    lines = text_lines(path)
    begin = next(((number, line) for number, line in lines if line.strip()), (1, ""))
    if not begin[1].lstrip().startswith("["):
        yield from _jsonl_rows(chain([begin], lines), path)
        return
    text, num_characters = [], 0
    for _, line in chain([begin], lines):
        text.append(line)
        num_characters += len(line)
        if num_characters > MAX_LINE_BYTES:
            raise _too_long(f"the JSON list in {path}")
    rows = _parse("\n".join(text), str(path))
    assert isinstance(rows, list)
    for number, row in enumerate(rows, start=1):
        yield number, _object(row, f"{path}, row {number}")


def _parse(text: str, where: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: this is no whole JSON value ({error}); the file may be cut short or damaged. "
            f"Write or fetch it again."
        ) from None
    return value


def _object(value: object, where: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(
            f"{where}: found a {type(value).__name__} where a JSON object such as "
            f'{{"en": "A sentence.", "de": "Ein Satz."}} should stand.'
        )
    return value


def _parquet_rows(path: Path, src: str, tgt: str) -> Iterator[tuple[int, Row]]:
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = needed_columns(file.schema_arrow.names, src, tgt)
            yield from arrow_rows(file.iter_batches(batch_size=1000, columns=columns), str(path))
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} is no sound parquet file ({_first_line(error)}): fetch or write it again."
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")


def _separated_pairs(path: Path, src: str, tgt: str, separator: Literal[",", "\t"]) -> Iterator[NumberedPair]:
    """The rows of a CSV or TSV file, whose first line names the columns. Cells such as ``NA`` are text."""
    rows = _csv_rows(path) if separator == "," else _tsv_rows(path)
    _, columns = next(rows, (0, None))
    if columns is None:
        return
    check_columns(columns, src, tgt, f"{path}, whose first line must name the columns,")
    src_index, tgt_index = columns.index(src), columns.index(tgt)
    for number, cells in rows:
        if len(cells) != len(columns):
            advice = "quote cells that hold a comma" if separator == "," else "take the tabs out of the text"
            raise DataError(
                f"{path}, line {number}: found {len(cells)} cells where the first line names {len(columns)} "
                f"columns; {advice}, so that no pair is misaligned."
            )
        yield number, cells[src_index], cells[tgt_index]


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    # Strict, because csv otherwise lets a quotation mark that is never closed swallow the lines after it.
    reader = csv.reader((line + "\n" for _, line in text_lines(path)), strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: this is no sound CSV ({error}); "
            f"inside a quoted cell each quotation mark must be doubled. A .tsv file needs no quoting."
        ) from None


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split("\t")) for number, line in text_lines(path) if line)
