r"""Reading one file, or two parallel ones, as numbered sentence pairs: JSONL, JSON, CSV, TSV, parquet, text.

Lines end with ``\n`` or ``\r\n`` and nowhere else: `str.splitlines` would also split at U+2028 and the
like, and so misalign parallel files. All text is UTF-8, with or without a byte order mark. A row has its
sentences in two columns, or in two fields of a column ``translation``.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from mt.config.data import DataConfig
from mt.config.sources import DELIMITERS, Delimiter, are_positions, parse_columns
from mt.data.sources.source import NumberedPair, Part, did_you_mean, listed
from mt.errors import DataError

TABLE_FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
NESTED = "translation"
BYTE_ORDER_MARK = "\ufeff"
CHARACTERS: dict[Delimiter, str] = {"tab": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}

# The most that is read into memory at once: a line, or the one list of a .json file. Without a limit, a few
# megabytes of gzip that unpack to one line of many gigabytes would take up all the memory.
MAX_LINE_BYTES = 2**28
# csv's own limit of 131,072 is too low for some corpora.
csv.field_size_limit(MAX_LINE_BYTES)

Row = Mapping[str, object]


def table_format(path: Path, delimiter: Delimiter = "auto") -> str | None:
    """The format by the name of a file (``.jsonl`` for ``train.jsonl.gz``), or None.

    ``.txt`` is a format only if it is known what separates the columns.
    """
    name = path.name.lower()
    suffix = Path(name.removesuffix(".gz")).suffix
    is_table = suffix in TABLE_FORMATS or (suffix == ".txt" and delimiter != "auto")
    return suffix if is_table and not name.endswith(".parquet.gz") else None


def table_part(path: Path, config: DataConfig) -> Part:
    """A file that has a `table_format`, with the columns that ``config`` names."""
    kind, where = table_format(path, config.delimiter), str(path)
    if kind == ".parquet":
        return Part(where, "row", row_pairs(_parquet_rows(path, config), config, where), (path,))
    if kind in (".json", ".jsonl"):
        is_list = kind == ".json"
        pairs = row_pairs(_json_rows(path, is_list=is_list), config, where)
        return Part(where, "row" if is_list else "line", pairs, (path,))
    return Part(where, "line", _delimited_pairs(path, config, is_quoted=kind == ".csv"), (path,))


def parallel_part(src_path: Path, tgt_path: Path) -> Part:
    """Two text files, where line n of one translates line n of the other."""
    pairs = _parallel_pairs(src_path, tgt_path)
    return Part(f"{src_path} and {tgt_path}", "line", pairs, (src_path, tgt_path))


def columns_of(config: DataConfig) -> tuple[str, str]:
    """The source's and the target's column, named by ``data.columns`` or else like the languages."""
    return parse_columns(config.columns) if config.columns else (config.src, config.tgt)


def check_columns(names: Sequence[str], config: DataConfig, where: str, advice: str = "") -> None:
    """Raise `DataError`, with ``advice`` at its end, unless both columns are among ``names``, once."""
    for language, name in zip(("data.src", "data.tgt"), columns_of(config), strict=True):
        if name not in names:
            option = "data.columns" if config.columns else language
            others = "" if config.columns or len(names) < 2 else " Set data.columns if they have other names."
            raise DataError(
                f"{where} has no column {name!r}, which {option} names; "
                f"its columns are {listed(names)}.{did_you_mean(name, names)}{others}{advice}"
            )
        if names.count(name) > 1:
            raise DataError(f"{where} has several columns {name!r}: rename all but one of them.")


def needed_columns(names: Sequence[str], config: DataConfig, where: str) -> list[str]:
    """The columns to read of a table whose columns have these ``names``."""
    src, tgt = columns_of(config)
    if NESTED in names and src not in names:
        return [NESTED]
    check_columns(names, config, where)
    return [src, tgt]


def row_pairs(rows: Iterable[tuple[int, Row]], config: DataConfig, where: str) -> Iterator[NumberedPair]:
    """The sentence pairs of numbered rows. The first row with text sets the shape; missing text is None."""
    src, tgt = columns_of(config)
    is_nested: bool | None = None
    for number, row in rows:
        inner = row.get(NESTED)
        if is_nested is None and (src in row or NESTED not in row or inner is not None):
            is_nested = src not in row and isinstance(inner, Mapping)
            check_columns(list(inner if isinstance(inner, Mapping) and is_nested else row), config, where)
        if is_nested:
            row = inner if isinstance(inner, Mapping) else {}
        yield number, row.get(src), row.get(tgt)


def arrow_rows(batches: Iterable[pa.Table | pa.RecordBatch], where: str) -> Iterator[tuple[int, Row]]:
    """The rows of Arrow tables, numbered from 1."""
    number = 1
    for batch in batches:
        yield from enumerate(_python_rows(batch, number, where), number)
        number += len(batch)


def _python_rows(batch: pa.Table | pa.RecordBatch, number: int, where: str) -> list[Row]:
    """The rows as dicts; only now does Arrow notice a text that is not UTF-8, or a date beyond Python's."""
    try:
        rows: list[Row] = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        for i in range(len(batch) if len(batch) > 1 else 0):
            _python_rows(batch.slice(i, 1), number + i, where)
        raise DataError(
            f"{where}, row {number}: this is not text in UTF-8 ({error}). Write the corpus again, or name "
            "two columns of text."
        ) from None
    return rows


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, numbered from 1, without line ends; ``.gz`` is unpacked."""
    number = 0
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
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
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path | str, error: Exception) -> DataError:
    """The error for a file that cannot be opened, or is damaged."""
    reason = (isinstance(error, OSError) and error.strerror) or str(error).strip().split("\n")[0].rstrip(".")
    return DataError(f"{path} cannot be read ({reason}): make it readable, or fetch or write it again.")


def _too_long(what: str) -> DataError:
    return DataError(
        f"{what} is longer than {MAX_LINE_BYTES:,} bytes, which is too much to read at once. "
        "Put each pair on a line of its own, as in .jsonl."
    )


def _parallel_pairs(src_path: Path, tgt_path: Path) -> Iterator[NumberedPair]:
    lines = zip_longest(text_lines(src_path), text_lines(tgt_path), fillvalue=(0, None))
    for number, ((_, src), (_, tgt)) in enumerate(lines, start=1):
        if src is None or tgt is None:
            longer = number + sum(1 for _ in lines)
            num_src, num_tgt = (number - 1, longer) if src is None else (longer, number - 1)
            raise DataError(
                f"{src_path} has {num_src:,} lines and {tgt_path} has {num_tgt:,}: line n of one must "
                "translate line n of the other, so both must have the same number of lines."
            )
        yield number, src, tgt


def _json_rows(path: Path, *, is_list: bool) -> Iterator[tuple[int, Row]]:
    """An object on each line; with ``is_list``, a file that begins with ``[`` is one list of objects."""
    lines = ((number, line) for number, line in text_lines(path) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    if not is_list or not first[1].lstrip().startswith("["):
        for number, line in chain([first], lines):
            where = f"{path}, line {number}"
            yield number, _object(_parsed(line, where), where)
        return
    text, num_characters = [], 0
    for _, line in chain([first], lines):
        text.append(line)
        num_characters += len(line)
        if num_characters > MAX_LINE_BYTES:
            raise _too_long(f"the JSON list in {path}")
    rows = _parsed("\n".join(text), str(path))
    assert isinstance(rows, list)
    for number, row in enumerate(rows, start=1):
        yield number, _object(row, f"{path}, row {number}")


def _parsed(text: str, where: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{where}: this is not a complete JSON value ({error}); the file may be cut short or damaged. "
            "Write or fetch it again."
        ) from None
    return value


def _object(value: object, where: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(
            f"{where}: this is a {type(value).__name__} instead of a JSON object such as "
            '{"en": "A sentence.", "de": "Ein Satz."}.'
        )
    return value


def _parquet_rows(path: Path, config: DataConfig) -> Iterator[tuple[int, Row]]:
    try:
        # Opened here, because pyarrow takes some names for addresses.
        with path.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as file:
            needed = needed_columns(file.schema_arrow.names, config, str(path))
            yield from arrow_rows(file.iter_batches(batch_size=1000, columns=needed), str(path))
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, error) from None


def _delimited_pairs(path: Path, config: DataConfig, *, is_quoted: bool) -> Iterator[NumberedPair]:
    """The pairs of lines of cells; columns are named by the first line, or numbered. ``NA`` is text."""
    columns, lines = columns_of(config), text_lines(path)
    # A line that ends in \r\r\n may consist of a line end alone.
    begin = next((line for line in lines if line[1].strip("\r")), None)
    if begin is None:
        return
    are_numbers = config.columns is not None and are_positions(*columns)
    delimiter = config.delimiter
    if delimiter == "auto":
        delimiter = "comma" if is_quoted else "tab"
        if not are_numbers:
            delimiter = _guess(begin[1], columns, delimiter, is_quoted=is_quoted)
    rows = _rows_of_cells(chain([begin], lines), path, delimiter, is_quoted=is_quoted)
    first = next(rows)
    cells = [cell.strip() for cell in first[1]]
    where, names = f"{path}, whose first line must name the columns,", cells
    advice = f" It was split at each {delimiter}; data.delimiter may also be {', '.join(DELIMITERS[1:])}."
    if are_numbers:
        where, names, rows = str(path), [str(i + 1) for i in range(len(cells))], chain([first], rows)
    elif len(cells) > 1:
        advice = " If the first line is already a pair, give numbers: data.columns: 1,2."
    check_columns(names, config, where, advice)
    src_index, tgt_index = map(names.index, columns)
    if are_numbers and {cells[src_index], cells[tgt_index]} == {config.src, config.tgt}:
        raise DataError(
            f"{path}, line {first[0]} names the columns {config.src!r} and {config.tgt!r}, so it is not a "
            "pair: leave out data.columns, whose numbers are for files without such a line."
        )
    for number, row in rows:
        if len(row) != len(cells):
            remedy = "quote cells that contain" if is_quoted else "remove from the text"
            raise DataError(
                f"{path}, line {number}: there are {len(row)} cells here, but {len(cells)} in the first "
                f"line; {remedy} a {delimiter}, so that no pair is misaligned."
            )
        yield number, row[src_index], row[tgt_index]


def _guess(line: str, columns: Sequence[str], usual: Delimiter, *, is_quoted: bool) -> Delimiter:
    """The delimiter that splits a header into both columns, or else into the most cells."""

    def quality(delimiter: Delimiter) -> tuple[bool, int]:
        try:
            (_, cells), *_ = _rows_of_cells([(1, line)], Path(), delimiter, is_quoted=is_quoted)
        except DataError:
            return False, 0
        return {cell.strip() for cell in cells}.issuperset(columns), len(cells)

    return max([usual, *CHARACTERS], key=quality)


def _rows_of_cells(
    lines: Iterable[tuple[int, str]], path: Path, delimiter: Delimiter, *, is_quoted: bool
) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row, with the number of its first line. A quotation mark is text unless quoted."""
    character = CHARACTERS[delimiter]
    if not is_quoted:
        yield from ((number, line.split(character)) for number, line in lines if line.strip("\r"))
        return
    lines = iter(lines)
    begin, line = next(lines)
    texts = (text + "\n" for text in chain([line], (text for _, text in lines)))
    # Strict, because csv otherwise lets a quotation mark that is never closed swallow the lines after it.
    reader = csv.reader(texts, delimiter=character, strict=True)
    number = begin
    try:
        for cells in reader:
            if cells:
                yield number, cells
            number = begin + reader.line_num
    except csv.Error as error:
        raise DataError(
            f"{path}, line {number}: the row that begins here is not valid CSV ({error}); "
            f"inside a quoted cell each quotation mark must be doubled. A .tsv file needs no quoting."
        ) from None
