"""The splits of a large corpus as files that are mapped: read, cleaned and checked once, then found again."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import datasets
import pyarrow as pa
from pydantic import TypeAdapter

from mt.data.cache import Cache, cache_folder
from mt.data.corpus_report import CorpusReport
from mt.data.pair_table import CHUNK_SIZE, PAIRS_IN_MEMORY, SCHEMA
from mt.data.sampler import Share
from mt.data.sources.source import SPLITS

LOG = logging.getLogger(__name__)

Splits = Mapping[str, datasets.Dataset]

_FACTS_FILE = "facts.json"


@dataclass(frozen=True)
class Facts:
    """What is known of the splits.

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
    """What ``read`` gives, if need be from the cache, where all of more than `PAIRS_IN_MEMORY` pairs is kept.

    Args:
        identify: Gives all that decides what ``read`` gives, in plain JSON types; None where nothing tells.
        read: Gives the splits, and what is known of them.
    """
    cache = Cache(cache_folder())
    key = identify()
    if key is not None and (entry := cache.find(key)):
        return _load(entry)
    splits, facts = read()
    # A file that was written to while it was read is neither the old one nor the new one.
    if key is None or sum(map(len, splits.values())) <= PAIRS_IN_MEMORY or identify() != key:
        return splits, facts
    try:
        return _load(cache.add(key, lambda folder: _save(folder, splits, facts)))
    except OSError as error:
        LOG.warning("the corpus is read anew next time: %s cannot be written (%s)", cache_folder(), error)
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
        # Without a fingerprint `datasets` would read all of the text to make one.
        split: datasets.Dataset(
            pa.ipc.open_stream(pa.memory_map(str(entry / f"{split}.arrow"))).read_all(),
            fingerprint=f"{entry.name}-{split}",
        )
        for split in SPLITS
    }
    return splits, _FACTS.validate_json((entry / _FACTS_FILE).read_bytes(), strict=True)
