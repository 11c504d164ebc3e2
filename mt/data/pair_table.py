"""Collects sentence pairs into a `datasets.Dataset`, in memory or in an Arrow file that is memory-mapped."""

import hashlib
from pathlib import Path

import datasets
import pyarrow as pa

SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])
CHUNK_SIZE = 10_000


class PairTable:
    """Grows by one pair at a time, and becomes a dataset with the columns ``src`` and ``tgt``."""

    def __init__(self, path: Path | None = None) -> None:
        """Write the pairs into a new file, whose bytes depend on the texts alone; None: into memory."""
        self._path = path
        self._sink = pa.BufferOutputStream() if path is None else pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._sink, SCHEMA)
        self._pairs: list[tuple[str, str]] = []
        self._num_written = 0
        self._hash = hashlib.blake2b(digest_size=8)

    def __len__(self) -> int:
        return self._num_written + len(self._pairs)

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest of all texts in order: the same on every machine for the same pairs."""
        self._write()
        return self._hash.hexdigest()

    def append(self, src: str, tgt: str) -> None:
        """Add one pair."""
        self._pairs.append((src, tgt))
        if len(self._pairs) == CHUNK_SIZE:
            self._write()

    def to_dataset(self) -> datasets.Dataset:
        """The pairs in the order in which they were added; after this, none can be added."""
        fingerprint = self.fingerprint
        self._stream.close()
        if self._path is None:
            table = pa.ipc.open_stream(self._sink.getvalue()).read_all()
            return datasets.Dataset(table, fingerprint=fingerprint)
        self._sink.close()
        return load_table(self._path, fingerprint=fingerprint)

    def _write(self) -> None:
        if not self._pairs:
            return
        src, tgt = (pa.array(side, pa.string()) for side in zip(*self._pairs, strict=True))
        self._stream.write_batch(pa.record_batch([src, tgt], schema=SCHEMA))
        # Each after its length in bytes, so that nothing can be shifted from one to the next.
        texts = (text.encode() for pair in self._pairs for text in pair)
        self._hash.update(b"".join(b"%d:%b" % (len(text), text) for text in texts))
        self._num_written += len(self._pairs)
        self._pairs = []


def load_table(path: Path, *, fingerprint: str) -> datasets.Dataset:
    """The pairs in the file of a table, which stay there and are read as they are needed.

    Without a fingerprint `datasets` would read the whole text to compute it.
    """
    return datasets.Dataset(pa.ipc.open_stream(pa.memory_map(str(path))).read_all(), fingerprint=fingerprint)
