"""Sentence pairs collected into a `datasets.Dataset`, few of them as Python objects at a time."""

import hashlib

import datasets
import pyarrow as pa

CHUNK_SIZE = 10_000
SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])


class PairTable:
    """Grows by one pair at a time, and becomes a dataset with the columns ``src`` and ``tgt``."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._src: list[str] = []
        self._tgt: list[str] = []
        self._hash = hashlib.blake2b(digest_size=8)
        self._num_pairs = 0

    def __len__(self) -> int:
        return self._num_pairs

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest of all texts in their order: the same on every machine for the same pairs."""
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
        """The pairs so far, in the order in which they came."""
        self._seal()
        return datasets.Dataset(pa.Table.from_batches(self._batches, SCHEMA), fingerprint=self.fingerprint)

    def _seal(self) -> None:
        if self._src:
            self._batches.append(pa.record_batch([pa.array(self._src), pa.array(self._tgt)], schema=SCHEMA))
            self._src, self._tgt = [], []
