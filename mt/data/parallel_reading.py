"""Reads and cleans a large training split in several processes, with the same result as in one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa

from mt.config.data import DataConfig
from mt.data.cleaning.checks import EXAMPLES_KEPT, Dropped
from mt.data.cleaning.filters import DUPLICATE, Cleaner
from mt.data.cleaning.piece import SCHEMA, CleanedPiece, DroppedPairs, Piece, clean_piece
from mt.data.pair_table import CHUNK_SIZE, PairTable
from mt.data.sources.source import Part, Split
from mt.data.worker_processes import default_num_processes, map_in_order
from mt.display import track

# Starting processes takes about a second, in which one process reads about 30 MB.
SMALLEST_BYTES = 2**26
# Read in a few tenths of a second, and small enough for several to wait their turn in memory.
PIECE_BYTES = 2**22


def num_processes(parts: Sequence[Part], config: DataConfig) -> int:
    """How many processes to read the training split with; 1 if it is small or cannot be divided.

    With a limit on the pairs it cannot, because where the limit is reached is known only after cleaning
    everything before.
    """
    divisions = [part.division for part in parts]
    if config.num_train_pairs is not None or None in divisions:
        return 1
    try:
        paths = [path for division in divisions if division for path in division.paths]
        num_bytes = sum(path.stat().st_size for path in paths)
    except OSError:  # Reading the file will report what is wrong with it.
        return 1
    return 1 if num_bytes < SMALLEST_BYTES else config.workers or default_num_processes()


def read_in_pieces(
    parts: Sequence[Part],
    cleaner: Cleaner,
    carved: Mapping[Split, PairTable],
    config: DataConfig,
    num_processes: int,
) -> PairTable:
    """The pairs to train on: the same, in the same order, as if one process had read all ``parts``.

    Args:
        parts: All of them can be divided.
        cleaner: Counts what is dropped, and knows the pairs of earlier sources.
        carved: The tables of splits that are carved out, which are filled.
        config: Has the share to be carved out.
        num_processes: How many processes read.

    Raises:
        DataError: As with one process, for the first pair or line that is wrong; or if a process was killed.
    """

    def pieces() -> Iterator[Piece]:
        for part in parts:
            assert part.division is not None
            for read in part.division.divide(PIECE_BYTES):
                yield Piece(
                    part.where, part.unit, read, frozenset(carved), config.held_out_fraction, cleaner.config
                )

    joined = _Joined(cleaner, carved)
    with closing(map_in_order(clean_piece, pieces(), num_processes)) as cleaned:
        for piece in track(cleaned, "reading", unit="pairs", size=lambda piece: piece.num_rows):
            joined.add(piece)
    joined.report_dropped()
    return joined.train


class _Joined:
    """Cleaned pieces, put together in their order.

    Attributes:
        train: The pairs to train on.
    """

    def __init__(self, cleaner: Cleaner, carved: Mapping[Split, PairTable]) -> None:
        self.train = PairTable()
        self._carved = carved
        self._cleaner = cleaner
        self._num_pairs = 0
        self._dropped = Dropped()
        self._first: dict[str, tuple[int, int]] = {}

    def add(self, piece: CleanedPiece) -> None:
        """Add the next piece, without duplicates of earlier pairs."""
        for stage, all_dropped in enumerate(piece.dropped):
            for dropped in all_dropped:
                self._drop(dropped, stage)
        train = pa.ipc.read_record_batch(piece.train, SCHEMA)
        if piece.hashes is not None:
            is_new = self._cleaner.are_new(piece.hashes)
            repeated = np.flatnonzero(~is_new)
            if len(repeated):
                examples = Dropped()
                for pair in train.take(pa.array(repeated[:EXAMPLES_KEPT])).to_pylist():
                    examples.add(DUPLICATE, pair["src"], pair["tgt"])
                first = int(piece.positions[repeated[0]])
                self._drop(DroppedPairs(DUPLICATE, first, len(repeated), examples.examples[DUPLICATE]), 2)
                train = train.filter(pa.array(is_new))
        self.train.extend(train)
        for split, pairs in piece.carved.items():
            self._carved[split].extend(pa.ipc.read_record_batch(pairs, SCHEMA))
        self._cleaner.num_rewritten += piece.num_rewritten
        self._num_pairs += piece.num_pairs

    def _drop(self, dropped: DroppedPairs, stage: int) -> None:
        chunk = (self._num_pairs + dropped.position) // CHUNK_SIZE
        self._first.setdefault(dropped.reason, (chunk, stage))
        self._dropped.add_many(dropped.reason, dropped.num_pairs, dropped.examples)

    def report_dropped(self) -> None:
        """Tell the cleaner what was dropped, with reasons in the order in which one process meets them.

        One process takes a chunk of pairs with text, filters it, and then looks for duplicates in the rest.
        """
        for reason in sorted(self._first, key=self._first.__getitem__):
            counts, examples = self._dropped.counts, self._dropped.examples
            self._cleaner.dropped.add_many(reason, counts[reason], examples[reason])
