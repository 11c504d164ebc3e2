"""What ``data.path`` means: a built-in corpus, something on disk, or a corpus on the Hugging Face Hub."""

import glob
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mt.builtin.primer import MAX_TRAIN_PAIRS, PRIMER_VERSION, primer_pairs
from mt.builtin.reverse import REVERSE_VERSION, reverse_pairs
from mt.config.data import IMPORTED, DataConfig
from mt.config.sources import parse_mix
from mt.data.sources.hub import HUB_ID, hub_source, saved_splits
from mt.data.sources.read import TABLE_FORMATS, parallel_part, table_format, table_part, text_lines
from mt.data.sources.source import (
    SPLIT_NAMES,
    SPLITS,
    Part,
    Source,
    Split,
    did_you_mean,
    listed,
    unreadable,
)
from mt.errors import ConfigError, DataError
from mt.files import named_path

PREFIX = "builtin:"
PRIMER = "builtin:primer"
REVERSE_CHARACTERS = "builtin:reverse-characters"
# The usual number of training pairs.
BUILT_IN = {PRIMER: 40_000, "builtin:reverse": 20_000, REVERSE_CHARACTERS: 20_000}

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
WILDCARD = re.compile(r"[*?[]")


def mixed_sources(config: DataConfig) -> list[tuple[DataConfig, float]]:
    """A config for each source alone, with its weight: ``data.path``, of weight 1, then ``data.mix``."""
    own = {"name": None, "revision": None, "columns": None, "delimiter": "auto", "num_train_pairs": None}
    mixed = [
        (config.model_copy(update={"mix": None} | own | fields), weight)
        for weight, fields in parse_mix(config.mix or "")
    ]
    return [(config.model_copy(update={"mix": None}), 1.0), *mixed]


class FoundSource(NamedTuple):
    """A source, the config that names it, and its weight."""

    config: DataConfig
    weight: float
    source: Source


def find_sources(config: DataConfig) -> list[FoundSource]:
    """The source that ``data.path`` names, and those of ``data.mix``."""
    found: list[FoundSource] = []
    for source_config, weight in mixed_sources(config):
        try:
            found.append(FoundSource(source_config, weight, find_source(source_config)))
        except (ConfigError, DataError) as error:
            raise (type(error)(f"data.mix, {source_config.path}: {error}") if found else error) from None
    return found


def files_on_disk(config: DataConfig, splits: Sequence[Split] = SPLITS) -> set[Path]:
    """The files on disk with these splits of all sources; none for a source that is no longer there."""
    files = set[Path]()
    for source_config, _ in mixed_sources(config):
        with suppress(DataError):
            if source := _on_disk(source_config):
                parts = (part for split in splits for part in source.splits.get(split, ()))
                files |= {file.resolve() for part in parts for file in part.files}
    return files


def find_source(config: DataConfig) -> Source:
    """The corpus that ``config.path`` names; files on disk are preferred to the Hub."""
    path = config.path
    if config.src == config.tgt:
        raise ConfigError(
            f"data.src and data.tgt are both {config.src!r}: name the two languages of the corpus."
        )
    if path == IMPORTED:
        raise DataError("the run was imported and has no corpus of its own: name one with --data.")
    if path.startswith(PREFIX):
        return _built_in(config)
    if source := _on_disk(config):
        return source
    hub_id = LEGACY_NAMES.get(path, path)
    if HUB_ID.fullmatch(hub_id) and table_format(Path(hub_id), config.delimiter) is None:
        return hub_source(hub_id, config)
    missing = next((str(file) for file in _two_paths(path) if not file.exists()), path)
    raise DataError(
        f"data.path: there is no file or folder {missing!r}, nor {missing}.{config.src} with "
        f"{missing}.{config.tgt}. It may be a folder, a file, a pattern such as part-*.jsonl, two text "
        f"files as in en.txt,de.txt, a Hub id such as bentrevett/multi30k, or {', '.join(BUILT_IN)}."
        f"{did_you_mean(missing, [*_neighbours(named_path(missing), config.src), *LEGACY_NAMES])}"
    )


def _neighbours(path: Path, src: str) -> list[str]:
    """Existing names beside ``path``, one of which may have been meant."""
    names = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    return [str(path.with_name(name.name.removesuffix(f".{src}"))) for name in names]


def _on_disk(config: DataConfig) -> Source | None:
    """The corpus on disk that ``config.path`` names; None if there is no such file or folder."""
    path, two_paths = named_path(config.path), _two_paths(config.path)
    sides = [Path(f"{path}.{language}") for language in (config.src, config.tgt)]
    try:
        named = (path, *two_paths, *sides, *(path.iterdir() if path.is_dir() else ()))
        if pipe := next((file for file in named if file.is_fifo()), None):
            raise DataError(
                f"{pipe} is a pipe, which can be read only once, while a corpus is read again, as when its "
                "run is resumed. Write what comes through it to a file, and give that."
            )
        if two_paths and all(file.is_file() for file in two_paths):
            for file in two_paths:
                if table_format(file) is not None:
                    raise DataError(f"data.path: {file} is a table, which has both sides: give it alone.")
            return Source("parallel text", {"train": [parallel_part(*two_paths)]})
        if path.is_dir():
            return Source("folder", _folder_splits(path, config))
        if path.is_file():
            part = _part(path, config)
            return Source("file" if len(part.files) == 1 else "parallel text", {"train": [part]})
        if parallel := _parallel(str(path), config):
            return Source("parallel text", {"train": [parallel]})
        if WILDCARD.search(str(path)):
            return Source("files", {"train": _matching_parts(str(path), config)})
    except OSError as error:
        raise unreadable(config.path, error) from None
    return None


def _two_paths(text: str) -> list[Path]:
    """The two paths of ``english.txt,german.txt``; none in a text without a comma."""
    names = [name.strip() for name in text.split(",")]
    return [named_path(name) for name in names] if len(names) == 2 and all(names) else []


def _part(path: Path, config: DataConfig) -> Part:
    """The table at ``path``, or the parallel text of which it is one side."""
    if table_format(path, config.delimiter) is not None and path.is_file():
        return table_part(path, config)
    name = str(path).removesuffix(".gz")
    for language in (config.src, config.tgt):
        stem = name.removesuffix(f".{language}")
        if stem != name and (parallel := _parallel(stem, config)):
            return parallel
    next(text_lines(path), None)  # What is not text says more about itself.
    raise DataError(
        f"{path} has no extension that shows its format: use {', '.join(TABLE_FORMATS)} (and .gz), or two "
        f"files of plain text, .{config.src} and .{config.tgt} or any two, as data.path: "
        "SOURCE.txt,TARGET.txt. If each line of a .txt file has both sides, set data.delimiter to what "
        "separates them, such as tab."
    )


def _folder_splits(folder: Path, config: DataConfig) -> dict[Split, list[Part]]:
    """The splits in a folder, or in its only subfolder that has some, or its only parallel text."""
    splits = saved_splits(folder, config) or _named_splits(folder, config)
    if "train" in splits:
        return splits
    inside = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    subfolders = [entry for entry in inside if entry.is_dir() and "train" in _named_splits(entry, config)]
    names = {entry.name.removesuffix(".gz") for entry in inside if entry.is_file()}
    stems = [str(folder / name.removesuffix(f".{config.src}")) for name in sorted(names)]
    texts = [
        stem for stem in stems if {f"{Path(stem).name}.{one}" for one in (config.src, config.tgt)} <= names
    ]
    if len(subfolders) + len(texts) > 1:
        corpora = ", ".join(map(str, [*subfolders, *texts]))
        raise DataError(f"{folder} contains several corpora. Choose one as data.path: {corpora}.")
    if not splits:
        for subfolder in subfolders:
            return _named_splits(subfolder, config)
        for stem in texts:
            if parallel := _parallel(stem, config):
                return {"train": [parallel]}
    contents = listed(entry.name + "/" * entry.is_dir() for entry in inside)
    raise DataError(
        f"{folder} contains no training split that can be read: name it train.jsonl, train.parquet, "
        f"train.csv, train.tsv, or train.{config.src} and train.{config.tgt}, or "
        f"choose a file. The folder contains {contents or 'no files'}."
    )


def _named_splits(folder: Path, config: DataConfig) -> dict[Split, list[Part]]:
    """The splits whose files are named after them."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    splits: dict[Split, list[Part]] = {}
    for split, names in SPLIT_NAMES.items():
        forms: dict[str, list[Part]] = {}
        for file in files:
            name = TABLE_NAME.fullmatch(file.name)
            if name and name["split"] in names and table_format(file, config.delimiter) is not None:
                forms.setdefault(name["split"] + name["suffix"], []).append(table_part(file, config))
        for stem in names:
            if parallel := _parallel(f"{folder / stem}", config):
                forms[stem] = [parallel]
        if len(forms) > 1:
            where = " or ".join(parts[0].where for parts in forms.values())
            raise DataError(f"{folder} contains the {split} split more than once: keep only {where}.")
        for parts in forms.values():
            splits[split] = parts
    return splits


def _parallel(stem: str, config: DataConfig) -> Part | None:
    """The parallel text whose files begin with ``stem``, or None if both are missing."""
    # Not with_name: a column that data.src names may have a slash.
    names = [f"{stem}.{config.src}", f"{stem}.{config.tgt}"]
    src, tgt = (
        next((file for file in (Path(name), Path(name + ".gz")) if file.is_file()), None) for name in names
    )
    if src and tgt:
        return parallel_part(src, tgt)
    if src or tgt:
        raise DataError(f"{src or tgt} has no counterpart: {names[1 if src else 0]} is missing.")
    return None


def _matching_parts(pattern: str, config: DataConfig) -> list[Part]:
    """The parts of all files that ``pattern`` matches, sorted by name; it may match either side of a text.

    ``*``, ``?`` and ``[abc]`` work as in a shell, and ``**`` matches any number of folders.
    """
    # Not Path.glob: that also matches hidden files, and refuses patterns that a shell accepts.
    matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
    parts = {part.where: part for match in matches if (part := _part(Path(match), config))}
    if not parts:
        raise DataError(f"No file matches {pattern}: check the folder and the pattern.")
    return list(parts.values())


def _built_in(config: DataConfig) -> Source:
    path = config.path
    if path not in BUILT_IN:
        raise DataError(
            f"data.path: there is no built-in corpus {path!r}, only {', '.join(BUILT_IN)}."
            f"{did_you_mean(path, BUILT_IN)}"
        )
    if path == PRIMER and {config.src, config.tgt} != {"en", "de"}:
        raise DataError(
            f"{PRIMER} is English and German: data.src and data.tgt must be en and de, or de and en, "
            f"not {config.src!r} and {config.tgt!r}."
        )
    num_train_pairs = config.num_train_pairs or BUILT_IN[path]
    if path == PRIMER and num_train_pairs > MAX_TRAIN_PAIRS:
        raise DataError(
            f"{PRIMER} has {MAX_TRAIN_PAIRS:,} training pairs, but data.num_train_pairs is "
            f"{num_train_pairs:,}: lower it."
        )
    sizes: dict[Split, int] = {"train": num_train_pairs, "validation": 500, "test": 1_000}
    parts = {split: [_built_in_part(path, split, size, config.src)] for split, size in sizes.items()}
    return Source("built-in", parts)


def _built_in_part(path: str, split: Split, num_pairs: int, src: str) -> Part:
    version = PRIMER_VERSION if path == PRIMER else REVERSE_VERSION
    if path == PRIMER:
        pairs = primer_pairs(split, num_pairs)
        pairs = pairs if src == "en" else ((de, en) for en, de in pairs)
    else:
        pairs = reverse_pairs(split, num_pairs, characters=path == REVERSE_CHARACTERS)
    numbered = ((number, *pair) for number, pair in enumerate(pairs, start=1))
    return Part(f"{path}, {split}", "row", numbered, version=f"version {version}")
