"""Pairs in chunks that fit into memory, however long their texts are."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

CHUNK_SIZE = 10_000
CHUNK_BYTES = 2**24

Pair = tuple[str, str]


def next_pairs(pairs: Iterator[Pair], most: int) -> list[Pair]:
    """The next pairs, at most so many, until they have `CHUNK_BYTES` characters or more."""
    chunk: list[Pair] = []
    num_characters = 0
    for src, tgt in islice(pairs, most):
        chunk.append((src, tgt))
        num_characters += len(src) + len(tgt)
        if num_characters >= CHUNK_BYTES:
            break
    return chunk


def parts_of(rows: "pa.Table | pa.RecordBatch") -> "Iterator[pa.Table | pa.RecordBatch]":
    """The rows in parts, each a single row or at most `CHUNK_BYTES`."""
    if rows.nbytes <= CHUNK_BYTES or len(rows) == 1:
        yield rows
    else:
        yield from parts_of(rows.slice(0, len(rows) // 2))
        yield from parts_of(rows.slice(len(rows) // 2))


def tables_of(dataset: "datasets.Dataset") -> "Iterator[pa.Table]":
    """All rows, at most `CHUNK_SIZE` at a time, in parts."""
    for table in dataset.with_format("arrow").iter(batch_size=CHUNK_SIZE):
        yield from parts_of(table)


def pairs_of(dataset: "datasets.Dataset") -> Iterator[Pair]:
    """Source and target of each row."""
    for table in tables_of(dataset):
        yield from zip(table["src"].to_pylist(), table["tgt"].to_pylist(), strict=True)
