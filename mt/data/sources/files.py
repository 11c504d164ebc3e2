r"""Reading one file, or two parallel ones, as numbered sentence pairs: JSONL, JSON, CSV, TSV, parquet, text.

Lines end with ``\n`` or ``\r\n`` and nowhere else: `str.splitlines` would also split at U+2028 and the
like, and so misalign parallel files. All text is UTF-8, with or without a byte order mark.
"""

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from io import BufferedReader
from itertools import chain, islice, takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from mt.config.data import DataConfig
from mt.config.sources import Delimiter
from mt.data.cache import file_digest
from mt.data.sources.source import NumberedPair, Part, Reader
from mt.data.sources.spans import WHOLE, Span, parallel_spans, spans
from mt.data.sources.tables import (
    Columns,
    Row,
    arrow_rows,
    delimited_pairs,
    has_cells,
    needed_columns,
    refuse_repeated_columns,
    row_pairs,
    sets_shape,
)
from mt.errors import DataError

TABLE_FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
BYTE_ORDER_MARK = "\ufeff"

# The most that is read into memory at once: a line, or the one list of a .json file. Without a limit, a few
# megabytes of gzip that unpack to one line of many gigabytes would take up all the memory.
MAX_LINE_BYTES = 2**28
# csv's own limit of 131,072 is too low for some corpora.
csv.field_size_limit(MAX_LINE_BYTES)


def table_format(path: Path, config: DataConfig) -> str | None:
    """The format by the name of a file (``.jsonl`` for ``train.jsonl.gz``), or None.

    ``.txt`` is a format only if ``config`` says what separates the columns.
    """
    name = path.name.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    if suffix == ".txt" and config.delimiter != "auto":
        return suffix
    if suffix not in TABLE_FORMATS or (suffix == ".parquet" and path.name.lower().endswith(".gz")):
        return None
    return suffix


def table_part(path: Path, config: DataConfig) -> Part:
    """A file that has a `table_format`, with the columns that ``config`` names."""
    where, columns, kind = str(path), Columns.of(config), table_format(path, config)
    identify = partial(file_digest, path)
    if kind == ".json":
        return Part(where, "row", row_pairs(_json_rows(path), columns, where), identify, (path,))
    if kind == ".parquet":
        return Part(where, "row", row_pairs(_parquet_rows(path, columns), columns, where), identify, (path,))
    read = partial(_table_lines, path, kind, columns, config.delimiter)

    def divide(num_bytes: int) -> Iterator[Reader]:
        return (partial(read, span) for span in spans(path, num_bytes))

    # A quoted cell of .csv may contain a newline, so not every line begins a row.
    is_divisible = kind != ".csv" and not _is_packed(path)
    return Part(where, "line", read(WHOLE), identify, (path,), divide if is_divisible else None)


def parallel_part(src_path: Path, tgt_path: Path) -> Part:
    """Two text files, where line n of one translates line n of the other."""
    paths = src_path, tgt_path
    read = partial(_parallel_pairs, src_path, tgt_path)

    def divide(num_bytes: int) -> Iterator[Reader]:
        return (partial(read, *both) for both in parallel_spans(src_path, tgt_path, num_bytes))

    return Part(
        f"{src_path} and {tgt_path}",
        "line",
        read(WHOLE, WHOLE),
        lambda: file_digest(src_path) + file_digest(tgt_path),
        paths,
        None if any(map(_is_packed, paths)) else divide,
    )


def _table_lines(
    path: Path, kind: str | None, columns: Columns, delimiter: Delimiter, span: Span
) -> Iterator[NumberedPair]:
    """The pairs in a span of a table, which is read as the first row of the whole file specifies."""
    lines = text_lines(path, span)
    before = takewhile(lambda numbered: numbered[0] < span.first_line, text_lines(path) if span.start else ())
    if kind == ".jsonl":
        first_row = (numbered for numbered in _jsonl_rows(before, path) if sets_shape(numbered[1], columns))
        pairs = row_pairs(chain(islice(first_row, 1), _jsonl_rows(lines, path)), columns, str(path))
    else:
        first_line = (numbered for numbered in before if has_cells(numbered[1]))
        lines = chain(islice(first_line, 1), lines)
        pairs = delimited_pairs(lines, path, columns, delimiter, is_quoted=kind == ".csv")
    return (pair for pair in pairs if pair[0] >= span.first_line) if span.start else pairs


def text_lines(path: Path, span: Span = WHOLE) -> Iterator[tuple[int, str]]:
    """The lines of a text file, numbered from 1, without line ends; ``.gz`` is unpacked.

    Args:
        path: The file.
        span: Which of its lines to read; must be all of them if the file is packed.

    Raises:
        DataError: If the file cannot be read, its packing is damaged, or a line is too long or not UTF-8.
    """
    position, end, number = span.start, span.end or sys.maxsize, span.first_line - 1
    try:
        with _open(path) as file:
            if position:
                file.seek(position)
            while position < end and (raw := file.readline(MAX_LINE_BYTES + 1)):
                if len(raw) > MAX_LINE_BYTES:
                    raise _too_long(f"{path}, line {number + 1}")
                position += len(raw)
                line = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
                number += 1
                yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number + 1}: byte {error.start + 1} (0x{error.object[error.start]:02x}) is not "
            f"UTF-8. If you know the encoding, convert the file: iconv -f ENCODING -t UTF-8."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is not a valid gzip file ({error}): fetch or pack it again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None


def _too_long(what: str) -> DataError:
    return DataError(
        f"{what} is longer than {MAX_LINE_BYTES:,} bytes, which is too much to read at once. "
        "Put each pair on a line of its own, as in .jsonl."
    )


def _open(path: Path) -> gzip.GzipFile | BufferedReader:
    if not _is_packed(path):
        return path.open("rb")
    # A failed download leaves no bytes, which Python unpacks as an empty text.
    if path.stat().st_size == 0:
        raise gzip.BadGzipFile("it is empty")
    return gzip.open(path)


def _is_packed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def _parallel_pairs(src_path: Path, tgt_path: Path, src_span: Span, tgt_span: Span) -> Iterator[NumberedPair]:
    src_lines, tgt_lines = text_lines(src_path, src_span), text_lines(tgt_path, tgt_span)
    number = src_span.first_line - 1
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
        f"line n of one must translate line n of the other, so both must have the same number of lines."
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
            f"{where}: this is not a complete JSON value ({error}); the file may be cut short or damaged. "
            f"Write or fetch it again."
        ) from None
    return value


def _object(value: object, where: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(
            f"{where}: found a {type(value).__name__} instead of a JSON object such as "
            f'{{"en": "A sentence.", "de": "Ein Satz."}}.'
        )
    return value


def _parquet_rows(path: Path, columns: Columns) -> Iterator[tuple[int, Row]]:
    try:
        # Opened here, because pyarrow takes some names for addresses.
        with path.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as file:
            refuse_repeated_columns(file.schema_arrow, columns, str(path))
            needed = needed_columns(file.schema_arrow.names, columns, str(path))
            yield from arrow_rows(file.iter_batches(batch_size=1000, columns=needed), str(path))
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} is not a valid parquet file ({_first_line(error)}): fetch or write it again."
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
