"""Rows with named columns, as ``{"en": .., "de": ..}`` or ``{"translation": {"en": .., "de": ..}}``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from mt.config.columns import are_positions, parse_columns
from mt.config.data import DataConfig
from mt.data.sources.source import NumberedPair, did_you_mean, listed
from mt.errors import DataError

NESTED = "translation"

Row = Mapping[str, object]


@dataclass(frozen=True)
class Columns:
    """The columns of source and target, by their names or, of a file without a header, by their numbers.

    Attributes:
        src: That of the source.
        tgt: That of the target.
        options: The options that name the two.
        languages: The source's and the target's.
    """

    src: str
    tgt: str
    options: tuple[str, str]
    languages: tuple[str, str]

    @classmethod
    def of(cls, config: DataConfig) -> Self:
        """Those that ``data.columns`` gives, or else those that are called as the languages."""
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
                " Other names are for data.columns." if option != "data.columns" and len(found) > 1 else ""
            )
            raise DataError(
                f"{where} has no column {name!r}, which {option} names; "
                f"its columns are {listed(found)}.{did_you_mean(name, found)}{names}{advice}"
            )
        if found.count(name) > 1:
            raise DataError(f"{where} has several columns {name!r}: rename all but one of them.")


def needed_columns(found: Sequence[str], columns: Columns) -> list[str]:
    """Those that need to be read; all that were found, to be named, where the right ones are not there."""
    if columns.src in found and columns.tgt in found:
        return [columns.src, columns.tgt]
    return [NESTED] if NESTED in found else list(found)


def row_pairs(rows: Iterable[tuple[int, Row]], columns: Columns, where: str) -> Iterator[NumberedPair]:
    """The sentence pairs of numbered rows. The first decides the shape; what a later one lacks is None.

    Raises:
        DataError: If the first row has not the columns.
    """
    src, tgt = columns.src, columns.tgt
    nested: bool | None = None
    for number, row in rows:
        if nested is None:
            inner = row.get(NESTED)
            nested = src not in row and isinstance(inner, Mapping)
            check_columns(list(inner if nested and isinstance(inner, Mapping) else row), columns, where)
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
