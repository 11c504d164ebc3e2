"""What ``data.path`` means: a built-in corpus, something on disk, or a corpus on the Hugging Face Hub."""

import glob
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mt.builtin.primer import MAX_TRAIN_PAIRS, primer_pairs
from mt.builtin.reverse import reverse_pairs
from mt.config.data import IMPORTED, OWN, DataConfig
from mt.config.explain import did_you_mean
from mt.config.sources import CorpusConfig, SourceConfig
from mt.data.sources.read import (
    TABLE_FORMATS,
    columns_of,
    lines_part,
    parallel_part,
    table_format,
    table_part,
)
from mt.data.sources.source import SPLIT_NAMES, NumberedPair, Part, Source, Split, Splits, listed, named_path
from mt.data.sources.text import text_lines, unreadable
from mt.data.written import WrittenSide
from mt.display import shown
from mt.errors import ConfigError, DataError

PREFIX = "builtin:"
PRIMER = "builtin:primer"
# The usual number of training pairs, and what yields the pairs of a split.
BUILT_IN: dict[str, tuple[int, Callable[[str, int], Iterator[tuple[str, str]]]]] = {
    PRIMER: (40_000, primer_pairs),
    "builtin:reverse": (20_000, reverse_pairs),
    "builtin:reverse-characters": (20_000, partial(reverse_pairs, characters=True)),
}

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# Names from before Hub ids had a namespace, which tutorials still use.
LEGACY_NAMES = {
    "opus_books": "Helsinki-NLP/opus_books",
    "opus100": "Helsinki-NLP/opus-100",
    "opus-100": "Helsinki-NLP/opus-100",
    "iwslt2017": "IWSLT/iwslt2017",
    "multi30k": "bentrevett/multi30k",
    **{f"wmt{year}": f"wmt/wmt{year}" for year in range(14, 20)},
}

# train.jsonl, train.csv.gz, or a shard of a large table: train-00000-of-00003.parquet
TABLE_NAME = re.compile(r"(?P<split>.+?)(-\d+-of-\d+)?(?P<suffix>\.\w+?(\.gz)?)")


class FoundSource(NamedTuple):
    """A source, and what the config says of it."""

    name: str
    """`OWN`, or its name in ``data.sources``."""
    config: DataConfig
    """As if it were alone."""
    weight: float
    source: Source
    tag: str | None = None
    written: WrittenSide | None = None
    """What a model wrote of it for a run, once it is known for which."""

    @property
    def where(self) -> str:
        """The place in the config."""
        return "data" if self.name == OWN else f"data.sources.{self.name}"


def find_sources(config: DataConfig, *, include_hub: bool = True) -> list[FoundSource]:
    """The source that ``data.path`` names, and ``data.sources``, perhaps without those on the Hub."""
    found: list[FoundSource] = []
    for name, given in {OWN: config, **config.sources}.items():
        keys: dict[str, object] = {key: getattr(given, key) for key in CorpusConfig.model_fields}
        keys |= {"src": given.src or config.src, "tgt": given.tgt or config.tgt, "sources": {}, "mix": None}
        alone = config.model_copy(update=keys)
        weight, tag = (given.weight, given.tag) if isinstance(given, SourceConfig) else (1.0, None)
        has_one_side = given.writer is not None and name != OWN
        if has_one_side:
            # Only the side that is there is read.
            column = columns_of(alone)[1 - given.written_side]
            alone = alone.model_copy(update={"columns": column})
        try:
            source = find_source(alone) if include_hub else _local_source(alone)
        except (ConfigError, DataError) as error:
            if name == OWN:
                raise
            raise type(error)(f"data.sources.{name}: {error}") from None
        if source and has_one_side:
            source = replace(source, splits={"train": source.splits["train"]})
        if source:
            found.append(FoundSource(name, alone, weight, source, tag))
    return found


def check_sources(config: DataConfig) -> None:
    """Find a wrong path or column in a moment: read the first pair of each split that is on disk."""
    for found in find_sources(config, include_hub=False):
        for first, *_ in found.source.splits.values():
            next(first.pairs(), None)


def find_source(config: DataConfig) -> Source:
    """The corpus that ``config.path`` names; files on disk are preferred to the Hub."""
    if source := _local_source(config):
        return source
    # Only here, because importing `datasets` is slow, and files need nothing of it.
    from mt.data.sources.hub import hub_source

    return hub_source(str(_hub_id(config)), config)


def _local_source(config: DataConfig) -> Source | None:
    """The built-in corpus, or that on disk, which ``config.path`` names; None if it may be on the Hub."""
    path = config.path
    if config.src == config.tgt:
        raise ConfigError(f"data.src and data.tgt are both {config.src!r}: name the two languages.")
    if path == IMPORTED:
        raise DataError("the run was imported and has no corpus of its own: name one with --data.")
    if path.startswith(PREFIX):
        return _built_in(config)
    source = _on_disk(config)
    if source or _hub_id(config):
        return source
    missing = next((str(file) for file in _two_paths(path) if not file.exists()), path)
    beside = named_path(missing).parent
    neighbours = sorted(beside.iterdir()) if beside.is_dir() else []
    known = [*(str(file).removesuffix(f".{config.src}") for file in neighbours), *LEGACY_NAMES]
    raise DataError(
        f"data.path: there is no file or folder {missing!r}, nor {missing}.{config.src} with "
        f"{missing}.{config.tgt}. It may be a folder, a file, a pattern (part-*.jsonl), two files "
        f"(en.txt,de.txt), a Hub id (bentrevett/multi30k), or {PRIMER}.{did_you_mean(missing, known)}"
    )


def _hub_id(config: DataConfig) -> str | None:
    """The Hub id that ``config.path`` may be; None if it cannot."""
    is_table = table_format(Path(config.path), config.delimiter) is not None
    return LEGACY_NAMES.get(config.path, config.path if may_be_hub_id(config.path) and not is_table else None)


def may_be_hub_id(text: str) -> bool:
    """Whether the text looks like a Hub id; in a folder that exists it is a path."""
    return HUB_ID.fullmatch(text) is not None and not Path(text).parent.is_dir()


def _on_disk(config: DataConfig) -> Source | None:
    """The corpus on disk that ``config.path`` names; None if there is no such file or folder."""
    path, two_paths = named_path(config.path), _two_paths(config.path)
    for file in (path, *two_paths):
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise DataError(
                f"{shown(file)} is a pipe or a device, and a corpus is read more than once: write it into a "
                "file first."
            )
    try:
        if path.is_dir():
            return Source("folder", _folder_splits(path, config))
        if path.is_file():
            parts = [_part(path, config)]
        elif two_paths and all(file.is_file() for file in two_paths):
            if table := next(filter(table_format, two_paths), None):
                raise DataError(f"data.path: {table} is a table, which has both sides: give it alone.")
            parts = [parallel_part(*two_paths)]
        elif parallel := _parallel(str(path), config):
            parts = [parallel]
        else:
            # Not Path.glob: that also matches hidden files, and refuses patterns that a shell accepts.
            matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
            parts = [_part(Path(match), config) for match in matches]
    except OSError as error:
        raise unreadable(config.path, error) from None
    # A pattern may match either side of a parallel text, or both.
    by_name = {part.where: part for part in parts}
    return Source("files", {"train": [*by_name.values()]}) if parts else None


def _two_paths(text: str) -> list[Path]:
    """The two paths of ``english.txt,german.txt``; none in a text without a comma."""
    names = [name.strip() for name in text.split(",")]
    return [named_path(name) for name in names] if len(names) == 2 and all(names) else []


def _part(path: Path, config: DataConfig) -> Part:
    """The table at ``path``, or the parallel text of which it is one side."""
    if table_format(path, config.delimiter) is not None and path.is_file():
        return table_part(path, config)
    stem, _ = _stem_and_suffix(path, config)
    if stem and (parallel := _parallel(f"{path.with_name(stem)}", config)):
        return parallel
    src, tgt = columns_of(config)
    if src == tgt:
        return lines_part(path)
    next(text_lines(path), None)  # What is not text says more about itself.
    raise DataError(
        f"{shown(path)} has no extension that shows its format: use {', '.join(TABLE_FORMATS)}, or two files "
        f".{config.src} and .{config.tgt}, as data.path: SOURCE.txt,TARGET.txt, or set data.delimiter."
    )


def _folder_splits(folder: Path, config: DataConfig) -> Splits:
    """The splits in a folder, or in its only subfolder that has some, or its only parallel text."""
    splits = _named_splits(folder, config)
    if "train" in splits:
        return splits
    inside = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    corpora: dict[str, Splits] = {}
    for entry in inside:
        stem = str(entry).removesuffix(".gz").removesuffix(f".{config.src}")
        if entry.is_dir() and "train" in (named := _named_splits(entry, config)):
            corpora[str(entry)] = named
        with suppress(DataError):  # Of a side alone.
            if parallel := _parallel(stem, config):
                corpora[stem] = {"train": [parallel]}
    if len(corpora) > 1:
        names = ", ".join(map(shown, corpora))
        raise DataError(f"{shown(folder)} contains several corpora. Choose one as data.path: {names}.")
    if corpora and not splits:
        return next(iter(corpora.values()))
    contents = listed(f"{entry.name}/" if entry.is_dir() else entry.name for entry in inside)
    raise DataError(
        f"{shown(folder)} contains no training split that can be read: name it train.jsonl (.csv, .tsv ...), "
        f"or train.{config.src} and train.{config.tgt}. The folder contains {contents or 'no files'}."
    )


def _named_splits(folder: Path, config: DataConfig) -> Splits:
    """The splits whose files are named after them, or that `datasets` has saved."""
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        from mt.data.sources.hub import saved_splits

        return saved_splits(folder, config)
    # The shards of each table, or a parallel text, by the name in lower case and by the form.
    named: dict[str, dict[str, dict[str, Part]]] = {
        name: {} for names in SPLIT_NAMES.values() for name in names
    }
    for file in sorted(file for file in folder.iterdir() if file.is_file()):
        stem, suffix = _stem_and_suffix(file, config)
        if stem.lower() in named:
            part = _part(file, config)
            named[stem.lower()].setdefault(stem + suffix, {})[part.where] = part
    splits: Splits = {}
    for split, names in SPLIT_NAMES.items():
        forms = next((named[name] for name in names if named[name]), {})
        if len(forms) > 1:
            where = " or ".join(next(iter(parts)) for parts in forms.values())
            raise DataError(f"{shown(folder)} contains the {split} split more than once: keep only {where}.")
        for parts in forms.values():
            splits[split] = [*parts.values()]
    return splits


def _stem_and_suffix(file: Path, config: DataConfig) -> tuple[str, str]:
    """``train`` and ``.csv`` of a table or its shard, ``train`` alone of a side of parallel text."""
    name = TABLE_NAME.fullmatch(file.name)
    if name and table_format(file, config.delimiter) is not None:
        return name["split"], name["suffix"]
    name_unpacked = file.name.removesuffix(".gz")
    for language in (*columns_of(config), config.src, config.tgt):
        if name_unpacked.endswith(f".{language}"):
            return name_unpacked.removesuffix(f".{language}"), ""
    return "", ""


def unread_files(config: DataConfig) -> Iterator[str]:
    """A sentence for each corpus that is in the folder of another, but is none of its splits."""
    for found in find_sources(config, include_hub=False):
        source = found.source
        # Of one of which a side is written, the other side is not read.
        if source.kind != "folder" or (found.name != OWN and found.config.writer):
            continue
        read = {file for parts in source.splits.values() for part in parts for file in part.files}
        free = [split for split in SPLIT_NAMES if split not in source.splits]
        for file in sorted(file for folder in {file.parent for file in read} for file in folder.iterdir()):
            if file in read or file.suffix == ".json" or not file.is_file():
                continue
            with suppress(DataError):
                part = _part(file, found.config)
                _, *first = next(part.pairs(), (0, None))
                if all(isinstance(text, str) for text in first):
                    read.update(part.files)
                    stem, suffix = _stem_and_suffix(file, found.config)
                    names = " or ".join(f"{split}{suffix}" for split in free)
                    remedy = f"name it {names}" if names else "score it with mt evaluate --data"
                    yield f"{shown(file if suffix else file.with_name(stem))} is not read: {remedy}."


def _parallel(stem: str, config: DataConfig) -> Part | None:
    """The parallel text whose files begin with ``stem``, or None if both are missing."""
    # Not with_name: a column that data.src names may have a slash.
    for names in (columns_of(config), (config.src, config.tgt)):
        src, tgt = (_existing(f"{stem}.{name}") for name in names)
        if src and tgt:
            return lines_part(src) if src == tgt else parallel_part(src, tgt)
        if src or tgt:
            missing = shown(f"{stem}.{names[1 if src else 0]}")
            raise DataError(f"{shown(src or tgt)} has no counterpart: {missing} is missing.")
    return None


def _existing(name: str) -> Path | None:
    """The file of this name, perhaps compressed."""
    return next((file for file in (Path(name), Path(f"{name}.gz")) if file.is_file()), None)


def _built_in(config: DataConfig) -> Source:
    path = config.path
    if path not in BUILT_IN:
        known = ", ".join(BUILT_IN)
        raise DataError(f"there is no built-in corpus {path!r}, only {known}.{did_you_mean(path, BUILT_IN)}")
    src, tgt = columns_of(config)
    if path == PRIMER and {src, tgt} != {"en", "de"}:
        languages = f"{src!r} and {tgt!r}"
        raise DataError(f"{PRIMER} is English and German: set data.src and data.tgt, not {languages}.")
    usual, generate = BUILT_IN[path]
    num_train_pairs = config.num_train_pairs or usual
    sizes: dict[Split, int] = {"train": num_train_pairs, "validation": 500, "test": 1_000}
    if path == PRIMER and num_train_pairs > MAX_TRAIN_PAIRS:
        raise DataError(
            f"{PRIMER} has {MAX_TRAIN_PAIRS:,} training pairs, but no more: lower num_train_pairs."
        )
    is_swapped = path == PRIMER and src == "de"

    def pairs(split: Split) -> Iterator[NumberedPair]:
        for number, pair in enumerate(generate(split, sizes[split]), start=1):
            yield number, *(reversed(pair) if is_swapped else pair)

    parts = {split: [Part(f"{path}, {split}", "row", partial(pairs, split))] for split in sizes}
    return Source("built-in", parts)
