"""Collects sentence pairs into a `datasets.Dataset`: the first in memory, the others in a file."""

import errno
import hashlib
import io
import logging
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import datasets
import pyarrow as pa
from pydantic import TypeAdapter

from mt.atomic_files import make_folder
from mt.data.batches.sampler import Share
from mt.data.cache import Cache, cache_folder
from mt.data.corpus_report import CorpusReport
from mt.data.sources.source import SPLITS

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


Splits = Mapping[str, datasets.Dataset]

_FACTS_FILE = "facts.json"


@dataclass(frozen=True)
class Facts:
    """Facts about the splits.

    Attributes:
        shares: The sources of the training pairs, in their order.
        report: What was read and what was dropped.
    """

    shares: tuple[Share, ...]
    report: CorpusReport


_FACTS = TypeAdapter(Facts)


def through_cache(
    identify: Callable[[], object], read: Callable[[], tuple[Splits, Facts]]
) -> tuple[Splits, Facts]:
    """The result of ``read``; corpora of more than `PAIRS_IN_MEMORY` pairs are cached.

    Args:
        identify: Returns all that decides the result of ``read``, in plain JSON types; None if unknown.
        read: Returns the splits, and what is known of them.
    """
    cache = Cache(cache_folder())
    key = identify()
    if key is not None and (entry := cache.find(key)):
        return _load(entry)
    splits, facts = read()
    # What was read of a file that changed meanwhile is neither its old nor its new content.
    if key is None or sum(map(len, splits.values())) <= PAIRS_IN_MEMORY or identify() != key:
        return splits, facts
    try:
        return _load(cache.add(key, lambda folder: _save(folder, splits, facts)))
    except OSError as error:
        LOG.warning(
            "the corpus will be read again next time: %s cannot be written (%s)", cache_folder(), error
        )
        return splits, facts


def _save(folder: Path, splits: Splits, facts: Facts) -> None:
    for split, dataset in splits.items():
        path = str(folder / f"{split}.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, SCHEMA) as stream:
            for table in dataset.with_format("arrow").iter(batch_size=CHUNK_SIZE):
                stream.write_table(table)
    (folder / _FACTS_FILE).write_bytes(_FACTS.dump_json(facts, by_alias=True))


def _load(entry: Path) -> tuple[Splits, Facts]:
    splits: Splits = {
        # Without a fingerprint `datasets` would read the whole text to compute one.
        split: datasets.Dataset(
            pa.ipc.open_stream(pa.memory_map(str(entry / f"{split}.arrow"))).read_all(),
            fingerprint=f"{entry.name}-{split}",
        )
        for split in SPLITS
    }
    return splits, _FACTS.validate_json((entry / _FACTS_FILE).read_bytes(), strict=True)
