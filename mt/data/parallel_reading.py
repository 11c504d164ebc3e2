"""Reads and cleans a large training split in several processes, with the same result as in one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

import pyarrow as pa
import pyarrow.compute as pc

from mt.config.data import DataConfig
from mt.data.cleaning.filters import DUPLICATE, Cleaner
from mt.data.cleaning.piece import SCHEMA, CleanedPiece, Piece, clean_piece
from mt.data.pair_table import PairTable
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
    if config.num_train_pairs is not None or any(part.divide is None for part in parts):
        return 1
    try:
        num_bytes = sum(file.stat().st_size for part in parts for file in part.files)
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
            assert part.divide is not None
            for read in part.divide(PIECE_BYTES):
                yield Piece(
                    part.where, part.unit, read, frozenset(carved), config.held_out_fraction, cleaner.config
                )

    train = PairTable()
    with closing(map_in_order(clean_piece, pieces(), num_processes)) as cleaned:
        for piece in track(cleaned, "reading", unit="pairs", size=lambda piece: piece.num_rows):
            cleaner.dropped.extend(piece.dropped)
            cleaner.num_rewritten += piece.num_rewritten
            train.extend(_without_duplicates(piece, cleaner))
            for split, pairs in piece.carved.items():
                carved[split].extend(pa.ipc.read_record_batch(pairs, SCHEMA))
    return train


def _without_duplicates(piece: CleanedPiece, cleaner: Cleaner) -> pa.RecordBatch:
    """The training pairs of a piece without those of earlier ones, which are counted as dropped."""
    train = pa.ipc.read_record_batch(piece.train, SCHEMA)
    if piece.hashes is None:
        return train
    is_new = pa.array(cleaner.are_new(piece.hashes))
    duplicates = train.filter(pc.invert(is_new))
    for src, tgt in zip(duplicates["src"].to_pylist(), duplicates["tgt"].to_pylist(), strict=True):
        cleaner.dropped.add(DUPLICATE, src, tgt)
    return train.filter(is_new)
