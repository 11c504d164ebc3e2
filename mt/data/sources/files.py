r"""Reading one file, or two parallel ones, as numbered sentence pairs: JSONL, JSON, CSV, TSV, parquet, text.

Lines end with ``\n`` or ``\r\n`` and nowhere else: `str.splitlines` would also split at U+2028 and the
like, and so misalign parallel files. All text is UTF-8, with or without a byte order mark.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet

from mt.config.data import DataConfig
from mt.data.cache import file_digest
from mt.data.sources.source import NumberedPair, Part
from mt.data.sources.tables import (
    Columns,
    Row,
    arrow_rows,
    delimited_pairs,
    needed_columns,
    refuse_repeated_columns,
    row_pairs,
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
    match kind:
        case ".json":
            pairs = row_pairs(_json_rows(path), columns, where)
        case ".parquet":
            pairs = row_pairs(_parquet_rows(path, columns), columns, where)
        case ".jsonl":
            pairs = row_pairs(_jsonl_rows(text_lines(path), path), columns, where)
        case _:
            pairs = delimited_pairs(
                text_lines(path), path, columns, config.delimiter, is_quoted=kind == ".csv"
            )
    unit: Literal["line", "row"] = "row" if kind in (".json", ".parquet") else "line"
    return Part(where, unit, pairs, partial(file_digest, path), (path,))


def parallel_part(src_path: Path, tgt_path: Path) -> Part:
    """Two text files, where line n of one translates line n of the other."""
    return Part(
        f"{src_path} and {tgt_path}",
        "line",
        _parallel_pairs(src_path, tgt_path),
        lambda: file_digest(src_path) + file_digest(tgt_path),
        (src_path, tgt_path),
    )


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, numbered from 1, without line ends; ``.gz`` is unpacked."""
    number = 0
    try:
        with _open(path) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise _too_long(f"{path}, line {number}")
                line = raw.removesuffix(b"\n").removesuffix(b"\r").decode()
                yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: byte {error.start + 1} (0x{error.object[error.start]:02x}) is not "
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
    if not path.name.lower().endswith(".gz"):
        return path.open("rb")
    # A failed download leaves no bytes, which Python unpacks as an empty text.
    if path.stat().st_size == 0:
        raise gzip.BadGzipFile("it is empty")
    return gzip.open(path)


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
