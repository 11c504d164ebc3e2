"""Rows with named columns, as ``{"en": .., "de": ..}`` or ``{"translation": {"en": .., "de": ..}}``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from mt.data.sources.source import NumberedPair, did_you_mean, listed
from mt.errors import DataError

NESTED = "translation"

Row = Mapping[str, object]


def check_columns(columns: Sequence[str], src: str, tgt: str, where: str) -> None:
    """Raise `DataError` unless ``src`` and ``tgt`` are each one of ``columns``."""
    for field, name in (("data.src", src), ("data.tgt", tgt)):
        if name not in columns:
            raise DataError(
                f"{where} has no column {name!r}, which {field} names; "
                f"its columns are {listed(columns)}.{did_you_mean(name, columns)}"
            )
        if columns.count(name) > 1:
            raise DataError(f"{where} has several columns {name!r}: rename all but one of them.")


def needed_columns(columns: Sequence[str], src: str, tgt: str) -> list[str]:
    """Those of ``columns`` that need to be read; all, to be named, where the right ones are not there."""
    if src in columns and tgt in columns:
        return [src, tgt]
    return [NESTED] if NESTED in columns else list(columns)


def row_pairs(rows: Iterable[tuple[int, Row]], src: str, tgt: str, where: str) -> Iterator[NumberedPair]:
    """The sentence pairs of numbered rows. The first decides the shape; what a later one lacks is None.

    Raises:
        DataError: If the first row has not the columns ``src`` and ``tgt``.
    """
    nested: bool | None = None
    for number, row in rows:
        if nested is None:
            inner = row.get(NESTED)
            nested = src not in row and isinstance(inner, Mapping)
            check_columns(list(inner if nested and isinstance(inner, Mapping) else row), src, tgt, where)
        if nested:
            inner = row.get(NESTED)
            row = inner if isinstance(inner, Mapping) else {}
        yield number, row.get(src), row.get(tgt)


def arrow_rows(batches: Iterable[pa.Table | pa.RecordBatch], where: str) -> Iterator[tuple[int, Row]]:
    """The rows of Arrow tables, numbered from 1.

    Raises:
        DataError: Where a text is not UTF-8, which Arrow finds out only when the row is read.
    """
    number = 0
    for batch in batches:
        try:
            rows = batch.to_pylist()
        except UnicodeDecodeError:
            broken = next(i for i in range(len(batch)) if not _is_readable(batch.slice(i, 1)))
            raise DataError(
                f"{where}, row {number + broken + 1}: the text is not UTF-8. Write the corpus again as UTF-8."
            ) from None
        for row in rows:
            number += 1
            yield number, row


def _is_readable(batch: pa.Table | pa.RecordBatch) -> bool:
    try:
        batch.to_pylist()
    except UnicodeDecodeError:
        return False
    return True
