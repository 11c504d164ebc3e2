"""Collects sentence pairs into a `datasets.Dataset`: the first ones in memory, the others in a file."""

import errno
import hashlib
import io
import logging
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mt.data.cache_folder import cache_folder
from mt.files import make_folder

LOG = logging.getLogger(__name__)

SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])
CHUNK_SIZE = 10_000
PAIRS_IN_MEMORY = 50_000


class Place(NamedTuple):
    """Position of a record batch in the file, in bytes."""

    start: int
    size: int


class PairTable:
    """Grows by one pair at a time, and becomes a dataset with the columns ``src`` and ``tgt``.

    All pairs after the first `PAIRS_IN_MEMORY` are written to an unnamed file in the cache folder, which
    disappears with the process, and are read from there as they are needed.
    """

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch | Place] = []
        self._file: io.FileIO | None = None
        self._has_room = True
        self._pairs: list[tuple[str, str]] = []
        self._hash = hashlib.blake2b(digest_size=8)
        self._num_sealed = 0

    def __len__(self) -> int:
        return self._num_sealed + len(self._pairs)

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest of all texts in order: the same on every machine for the same pairs."""
        self._seal()
        return self._hash.hexdigest()

    def append(self, src: str, tgt: str) -> None:
        """Add one pair."""
        self._pairs.append((src, tgt))
        if len(self._pairs) == CHUNK_SIZE:
            self._seal()

    def to_dataset(self) -> datasets.Dataset:
        """The pairs so far, in the order in which they were added."""
        self._seal()
        is_written = any(isinstance(batch, Place) for batch in self._batches)
        file = pa.py_buffer(self._mapped() if is_written else b"")
        batches = [
            pa.ipc.read_record_batch(file.slice(*batch), SCHEMA) if isinstance(batch, Place) else batch
            for batch in self._batches
        ]
        return datasets.Dataset(pa.Table.from_batches(batches, SCHEMA), fingerprint=self.fingerprint)

    def _mapped(self) -> mmap.mmap:
        assert self._file is not None
        return mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)

    def _seal(self) -> None:
        if not self._pairs:
            return
        src, tgt = ([pair[side] for pair in self._pairs] for side in (0, 1))
        batch = pa.record_batch([pa.array(src, pa.string()), pa.array(tgt, pa.string())], schema=SCHEMA)
        self._pairs = []
        self._num_sealed += len(batch)
        self._hash.update(_framed(batch))
        if self._num_sealed > PAIRS_IN_MEMORY and self._has_room:
            try:
                self._batches.append(self._write(batch.serialize()))
                return
            except OSError as error:
                self._has_room = False
                LOG.warning("the corpus stays in memory: %s cannot be written (%s)", cache_folder(), error)
        self._batches.append(batch)

    def _write(self, data: pa.Buffer) -> Place:
        if self._file is None:
            make_folder(cache_folder())
            self._file = tempfile.TemporaryFile(dir=cache_folder(), buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        place = Place(self._file.tell(), data.size)
        if self._file.write(data) < data.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return place


def _framed(batch: pa.RecordBatch) -> memoryview:
    """All texts of all pairs in order, as bytes, each after its length in bytes and a colon."""
    # Large offsets, because together the texts may have more bytes than 32 bits can count.
    large = pa.large_string()
    src, tgt = (column.cast(large) for column in batch.columns)
    src_length, tgt_length = (pc.binary_length(side).cast(large) for side in (src, tgt))
    colon, nothing = pa.scalar(":", large), pa.scalar("", large)
    framed = pc.binary_join_element_wise(src_length, colon, src, tgt_length, colon, tgt, nothing)
    _, offsets, text = framed.buffers()
    num_bytes = int(np.frombuffer(offsets, np.int64)[len(framed)])
    return memoryview(text)[:num_bytes]


def save_table(pairs: datasets.Dataset, path: Path) -> None:
    """Write pairs into an Arrow file, whose bytes depend on the texts alone."""
    no_text = pa.array([], pa.string())
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as stream:
        for table in pairs.with_format("arrow").iter(batch_size=CHUNK_SIZE):
            # Copied, so that the bytes do not depend on how the text was split while it was read.
            columns = [pa.concat_arrays([*column.chunks, no_text]) for column in table.columns]
            stream.write_batch(pa.record_batch(columns, schema=SCHEMA))


def load_table(path: Path, *, fingerprint: str) -> datasets.Dataset:
    """The pairs in a file of `save_table`, which stay there and are read as they are needed.

    Without a fingerprint `datasets` would read the whole text to compute it.
    """
    return datasets.Dataset(pa.ipc.open_stream(pa.memory_map(str(path))).read_all(), fingerprint=fingerprint)
