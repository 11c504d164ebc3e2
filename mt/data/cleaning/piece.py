"""Reads and cleans a piece of the training data independently of the others: the work of one process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mt.config.data import CleaningConfig
from mt.data.cleaning.checks import Dropped, training_pairs
from mt.data.cleaning.filters import Cleaner, Pairs
from mt.data.sources.source import Part, Reader, Split, carved_split
from mt.seen_pairs import pair_hashes

SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])


@dataclass(frozen=True)
class Piece:
    """Some consecutive pairs of a part of the training split.

    Attributes:
        where: The name of the part in messages.
        unit: What its pair numbers count, such as lines.
        read: Reads the pairs.
        carved: The splits that are carved from the training split.
        fraction: The share of each of them.
        cleaning: What is dropped.
    """

    where: str
    unit: Literal["line", "row"]
    read: Reader
    carved: frozenset[Split]
    fraction: float
    cleaning: CleaningConfig


@dataclass(frozen=True)
class CleanedPiece:
    """The result of cleaning a piece.

    Attributes:
        train: The pairs to train on, an Arrow record batch, still with duplicates.
        hashes: ``(N,)`` their hashes; None if duplicates are kept.
        carved: The pairs of each split that is carved, likewise record batches.
        num_rows: Pairs with text on both sides.
        dropped: The pairs that lack text, and those that meet a filter.
        num_rewritten: Pairs that were changed by Unicode normalisation.
    """

    train: pa.Buffer
    hashes: npt.NDArray[np.uint64] | None
    carved: Mapping[Split, pa.Buffer]
    num_rows: int
    dropped: Dropped
    num_rewritten: int


def clean_piece(piece: Piece) -> CleanedPiece:
    """Read a piece, and do everything that needs no other piece: all except looking for duplicates.

    Raises:
        DataError: If it cannot be read, or a text has a lone surrogate.
    """
    cleaner = Cleaner(piece.cleaning.model_copy(update={"remove_duplicates": False}))
    pairs: Pairs = []
    carved: dict[Split, Pairs] = {split: [] for split in piece.carved}
    for pair in training_pairs([Part(piece.where, piece.unit, piece.read())], cleaner.dropped):
        split = carved_split(pair[0], piece.fraction) if carved else "train"
        carved.get(split, pairs).append(pair)
    kept = cleaner.clean(pairs)
    return CleanedPiece(
        train=to_batch(kept).serialize(),
        hashes=pair_hashes(kept) if piece.cleaning.remove_duplicates else None,
        carved={split: to_batch(some).serialize() for split, some in carved.items()},
        num_rows=len(pairs) + sum(map(len, carved.values())),
        dropped=cleaner.dropped,
        num_rewritten=cleaner.num_rewritten,
    )


def to_batch(pairs: Pairs) -> pa.RecordBatch:
    """Pairs as Arrow columns ``src`` and ``tgt``."""
    src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
    return pa.record_batch([pa.array(src, pa.string()), pa.array(tgt, pa.string())], schema=SCHEMA)
