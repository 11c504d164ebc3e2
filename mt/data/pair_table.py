"""Collects sentence pairs into a `datasets.Dataset`: the first in memory, the others in a file."""

import errno
import hashlib
import io
import logging
import mmap
import os
import tempfile
import weakref
from typing import NamedTuple

import datasets
import pyarrow as pa

from mt.atomic_files import make_folder
from mt.data.cache import cache_folder

LOG = logging.getLogger(__name__)

CHUNK_SIZE = 10_000
PAIRS_IN_MEMORY = 50_000
SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])


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
        self._src: list[str] = []
        self._tgt: list[str] = []
        self._hash = hashlib.blake2b(digest_size=8)
        self._num_pairs = 0

    def __len__(self) -> int:
        return self._num_pairs

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest of all texts in order: the same on every machine for the same pairs."""
        return self._hash.hexdigest()

    def append(self, src: str, tgt: str) -> None:
        """Add one pair."""
        self._src.append(src)
        self._tgt.append(tgt)
        self._num_pairs += 1
        for text in (src, tgt):
            encoded = text.encode()
            self._hash.update(b"%d:%b" % (len(encoded), encoded))
        if len(self._src) == CHUNK_SIZE:
            self._seal()

    def to_dataset(self) -> datasets.Dataset:
        """The pairs so far, in the order in which they were added."""
        self._seal()
        file = pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) if self._file else b"")
        batches = [
            pa.ipc.read_record_batch(file.slice(*batch), SCHEMA) if isinstance(batch, Place) else batch
            for batch in self._batches
        ]
        return datasets.Dataset(pa.Table.from_batches(batches, SCHEMA), fingerprint=self.fingerprint)

    def _seal(self) -> None:
        if not self._src:
            return
        batch = pa.record_batch([pa.array(self._src), pa.array(self._tgt)], schema=SCHEMA)
        self._src, self._tgt = [], []
        if self._num_pairs > PAIRS_IN_MEMORY and self._has_room:
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
