"""Reads and cleans a piece of the training data independently of the others: the work of one process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mt.config.data import CleaningConfig
from mt.data.cleaning.checks import Dropped, training_pairs
from mt.data.cleaning.filters import KEPT, Cleaner, Pairs
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


class DroppedPairs(NamedTuple):
    """Pairs that were dropped for one reason.

    Attributes:
        reason: Why.
        position: How many pairs with text on both sides precede the first one, not counting carved ones.
        num_pairs: How many.
        examples: The first of them, as in `Dropped`.
    """

    reason: str
    position: int
    num_pairs: int
    examples: list[list[str]]


@dataclass(frozen=True)
class CleanedPiece:
    """The result of cleaning a piece.

    Attributes:
        train: The pairs to train on, an Arrow record batch, still with duplicates.
        positions: ``(N,)`` their positions among the ``num_pairs``.
        hashes: ``(N,)`` their hashes; None if duplicates are kept.
        carved: The pairs of each split that is carved, likewise record batches.
        num_pairs: Pairs with text on both sides, without those that were carved.
        num_carved: Pairs that were carved.
        dropped: The pairs that lack text, and those that meet a filter; each in the order of the first.
        num_rewritten: Pairs that were changed by Unicode normalisation.
    """

    train: pa.Buffer
    positions: npt.NDArray[np.intp]
    hashes: npt.NDArray[np.uint64] | None
    carved: Mapping[Split, pa.Buffer]
    num_pairs: int
    num_carved: int
    dropped: tuple[list[DroppedPairs], list[DroppedPairs]]
    num_rewritten: int

    @property
    def num_rows(self) -> int:
        """Pairs with text on both sides."""
        return self.num_pairs + self.num_carved


def clean_piece(piece: Piece) -> CleanedPiece:
    """Read a piece, and do everything that needs no other piece: all except looking for duplicates.

    Raises:
        DataError: If it cannot be read, or a text has a lone surrogate.
    """
    lacking, first_lacking = Dropped(), dict[str, int]()
    pairs: Pairs = []
    carved: dict[Split, Pairs] = {split: [] for split in piece.carved}

    def note_first() -> None:
        for reason in lacking.counts.keys() - first_lacking.keys():
            first_lacking[reason] = len(pairs)

    for pair in training_pairs([Part(piece.where, piece.unit, piece.read())], lacking):
        if len(lacking.counts) > len(first_lacking):
            note_first()
        split = carved_split(pair[0], piece.fraction) if carved else "train"
        carved.get(split, pairs).append(pair)
    note_first()

    cleaner = Cleaner(piece.cleaning)
    cleaned = cleaner.rewritten(pairs)
    reasons = cleaner.reasons(cleaned)
    filtered, first_filtered = Dropped(), dict[str, int]()
    for i in np.flatnonzero(reasons != KEPT).tolist():
        reason = cleaner.filters[reasons[i]].reason
        first_filtered.setdefault(reason, i)
        filtered.add(reason, *cleaned[i])
    positions = np.flatnonzero(reasons == KEPT)
    kept = [cleaned[i] for i in positions]
    return CleanedPiece(
        train=to_batch(kept).serialize(),
        positions=positions,
        hashes=pair_hashes(kept) if piece.cleaning.remove_duplicates else None,
        carved={split: to_batch(some).serialize() for split, some in carved.items()},
        num_pairs=len(pairs),
        num_carved=sum(map(len, carved.values())),
        dropped=(_listed(lacking, first_lacking), _listed(filtered, first_filtered)),
        num_rewritten=cleaner.num_rewritten,
    )


def to_batch(pairs: Pairs) -> pa.RecordBatch:
    """Pairs as Arrow columns ``src`` and ``tgt``."""
    src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
    return pa.record_batch([pa.array(src, pa.string()), pa.array(tgt, pa.string())], schema=SCHEMA)


def _listed(dropped: Dropped, first: Mapping[str, int]) -> list[DroppedPairs]:
    return [
        DroppedPairs(reason, first[reason], count, dropped.examples[reason])
        for reason, count in dropped.counts.items()
    ]
