"""What ``data.path`` means: a built-in corpus, something on disk, or a corpus on the Hugging Face Hub."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mt.builtin.primer import MAX_TRAIN_PAIRS, PRIMER_VERSION, primer_pairs
from mt.builtin.reverse import REVERSE_VERSION, reverse_pairs
from mt.config.data import DataConfig
from mt.config.sources import parse_mix
from mt.data.sources.files import table_format
from mt.data.sources.hub import hub_source
from mt.data.sources.hub_access import HUB_ID
from mt.data.sources.local import are_two_files, find_local, find_pattern, find_two_files, neighbours
from mt.data.sources.source import SPLITS, NumberedPair, Part, Source, Split, did_you_mean
from mt.data.sources.tables import Columns
from mt.errors import ConfigError, DataError
from mt.files import named_path

LOG = logging.getLogger(__name__)

PREFIX = "builtin:"
PRIMER = "builtin:primer"
REVERSE = "builtin:reverse"
REVERSE_CHARACTERS = "builtin:reverse-characters"

NUM_PAIRS: dict[str, dict[Split, int]] = {
    PRIMER: {"train": 40_000, "validation": 500, "test": 1_000},
    REVERSE: {"train": 20_000, "validation": 500, "test": 1_000},
    REVERSE_CHARACTERS: {"train": 20_000, "validation": 500, "test": 1_000},
}

# Names from before Hub ids had a namespace, which tutorials still use.
LEGACY_NAMES = {
    "opus_books": "Helsinki-NLP/opus_books",
    "opus100": "Helsinki-NLP/opus-100",
    "opus-100": "Helsinki-NLP/opus-100",
    "europarl": "Helsinki-NLP/europarl",
    "news_commentary": "Helsinki-NLP/news_commentary",
    "kde4": "Helsinki-NLP/kde4",
    "tatoeba": "Helsinki-NLP/tatoeba",
    "iwslt2017": "IWSLT/iwslt2017",
    "multi30k": "bentrevett/multi30k",
    **{f"wmt{year}": f"wmt/wmt{year}" for year in range(14, 20)},
}


def mixed_sources(config: DataConfig) -> list[tuple[DataConfig, float]]:
    """A config for each source alone, with its weight: ``data.path``, of weight 1, then ``data.mix``."""
    own = {"name": None, "revision": None, "columns": None, "delimiter": "auto", "num_train_pairs": None}
    mixed = [
        (config.model_copy(update={"mix": None} | own | fields), weight)
        for weight, fields in parse_mix(config.mix or "")
    ]
    return [(config.model_copy(update={"mix": None}), 1.0), *mixed]


def files_on_disk(config: DataConfig, splits: Sequence[Split] = SPLITS) -> set[Path]:
    """The files on disk with these splits of all sources; none for a source that is no longer there."""
    files = set[Path]()
    for source, _ in mixed_sources(config):
        with suppress(DataError):
            if found := _on_disk(source):
                parts = (part for split in splits for part in found.splits.get(split, ()))
                files |= {file.resolve() for part in parts for file in part.files}
    return files


def find_source(config: DataConfig) -> Source:
    """The corpus that ``config.path`` names; files on disk are preferred to the Hub."""
    src, tgt = config.src, config.tgt
    if src == tgt:
        raise ConfigError(f"data.src and data.tgt are both {src!r}: name the two languages of the corpus.")
    found = _builtin_source(config) if config.path.startswith(PREFIX) else _on_disk(config)
    if found is None:
        return _from_hub(config)
    _warn_of_hub_options(config, found)
    return found


def _on_disk(config: DataConfig) -> Source | None:
    if are_two_files(config.path):  # First, because their names may look like a pattern.
        return find_two_files(config.path, config)
    path = named_path(config.path)
    return find_local(path, config) or find_pattern(str(path), config) or find_two_files(config.path, config)


def _warn_of_hub_options(config: DataConfig, found: Source) -> None:
    """Log which options have no effect, because the corpus does not come from the Hub."""
    for option, value in (("data.name", config.name), ("data.revision", config.revision)):
        if value is not None:
            LOG.warning(
                "%s (%s) has no effect: it is for a corpus on the Hub, but %s is %s",
                option,
                value,
                config.path,
                "built in" if found.kind == "built-in" else "on disk",
            )


def _from_hub(config: DataConfig) -> Source:
    path, src, tgt = named_path(config.path), config.src, config.tgt
    hub_id = LEGACY_NAMES.get(config.path, config.path)
    if not HUB_ID.fullmatch(hub_id) or table_format(path, config) is not None:
        known = [*neighbours(path, src), *LEGACY_NAMES]
        raise DataError(
            f"data.path: there is no file or folder {config.path!r}, nor {config.path}.{src} with "
            f"{config.path}.{tgt}. It may be a folder, a file, a pattern such as part-*.jsonl, two text "
            f"files as in en.txt,de.txt, a Hub id such as bentrevett/multi30k, {PRIMER} or {REVERSE}."
            f"{did_you_mean(str(path), known)}"
        )
    return hub_source(
        hub_id,
        Columns.of(config),
        name=config.name,
        revision=config.revision,
        limit_seconds=config.hub_timeout_seconds,
    )


def _builtin_source(config: DataConfig) -> Source:
    path, src, tgt = config.path, config.src, config.tgt
    if path not in NUM_PAIRS:
        raise DataError(
            f"data.path: there is no built-in corpus {path!r}, only {PRIMER}, {REVERSE} and "
            f"{REVERSE_CHARACTERS}.{did_you_mean(path, NUM_PAIRS)}"
        )
    if path == PRIMER and {src, tgt} != {"en", "de"}:
        raise DataError(
            f"{PRIMER} is English and German: data.src and data.tgt must be en and de, or de and en, "
            f"not {src!r} and {tgt!r}."
        )
    sizes = NUM_PAIRS[path] | ({} if config.num_train_pairs is None else {"train": config.num_train_pairs})
    if path == PRIMER and sizes["train"] > MAX_TRAIN_PAIRS:
        raise DataError(
            f"{PRIMER} has {MAX_TRAIN_PAIRS:,} training pairs, but data.num_train_pairs is "
            f"{sizes['train']:,}: lower it."
        )
    pairs = {split: _pairs(path, split, sizes[split], swapped=src == "de") for split in SPLITS}
    version = PRIMER_VERSION if path == PRIMER else REVERSE_VERSION
    parts = {
        split: Part(f"{path}, {split}", "row", pairs[split], lambda: f"version {version}") for split in SPLITS
    }
    return Source("built-in", {split: [part] for split, part in parts.items()})


def _pairs(path: str, split: Split, num_pairs: int, *, swapped: bool) -> Iterator[NumberedPair]:
    if path == PRIMER:
        pairs = primer_pairs(split, num_pairs)
    else:
        pairs, swapped = reverse_pairs(split, num_pairs, characters=path == REVERSE_CHARACTERS), False
    for number, (src, tgt) in enumerate(pairs, start=1):
        yield (number, tgt, src) if swapped else (number, src, tgt)
