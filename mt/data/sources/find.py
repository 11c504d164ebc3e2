"""What ``data.path`` means: a built-in corpus, something on disk, or a corpus on the Hugging Face Hub."""

import glob
import re
from pathlib import Path

from mt.builtin.primer import MAX_TRAIN_PAIRS, PRIMER_VERSION, primer_pairs
from mt.builtin.reverse import REVERSE_VERSION, reverse_pairs
from mt.config.data import IMPORTED, DataConfig
from mt.config.sources import parse_mix
from mt.data.sources.hub import HUB_ID, hub_source
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
    if HUB_ID.fullmatch(path) and table_format(Path(path), config.delimiter) is None:
        return hub_source(config)
    raise DataError(
        f"data.path: there is no file or folder {path!r}, nor {path}.{config.src} with {path}.{config.tgt}. "
        "It may be a folder, a file, a pattern such as part-*.jsonl, two text files as in en.txt,de.txt, a "
        f"Hub id such as bentrevett/multi30k, or {', '.join(BUILT_IN)}."
    )


def _on_disk(config: DataConfig) -> Source | None:
    """The corpus on disk that ``config.path`` names; None if there is no such file or folder."""
    path = named_path(config.path)
    try:
        two_paths = [named_path(name.strip()) for name in config.path.split(",")]
        if len(two_paths) == 2 and all(file.is_file() for file in two_paths):
            for file in two_paths:
                if table_format(file) is not None:
                    raise DataError(f"data.path: {file} is a table, which has both sides: give it alone.")
            return Source("parallel text", {"train": [parallel_part(*two_paths)]})
        if path.is_dir():
            return Source("folder", _folder_splits(path, config))
        if part := _part(path, config) if path.is_file() else _parallel(str(path), config):
            return Source("file" if len(part.files) == 1 else "parallel text", {"train": [part]})
        if WILDCARD.search(str(path)):
            # Not Path.glob: that also matches hidden files, and refuses patterns that a shell accepts.
            matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
            # A pattern may match both sides of a text.
            parts = {part.where: part for match in matches if (part := _part(Path(match), config))}
            if not parts:
                raise DataError(f"No file matches {path}: check the folder and the pattern.")
            return Source("files", {"train": [*parts.values()]})
    except OSError as error:
        raise unreadable(config.path, error) from None
    return None


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
        f"files of plain text, .{config.src} and .{config.tgt} or any two, as SOURCE.txt,TARGET.txt. If each "
        "line of a .txt file has both sides, set data.delimiter to what separates them, such as tab."
    )


def _folder_splits(folder: Path, config: DataConfig) -> dict[Split, list[Part]]:
    """The splits whose files are named after them, or the only parallel text of a folder."""
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
    if "train" in splits:
        return splits
    names_of_files = {file.name.removesuffix(".gz") for file in files}
    stems = [name.removesuffix(f".{config.src}") for name in names_of_files]
    both = [stem for stem in stems if {f"{stem}.{config.src}", f"{stem}.{config.tgt}"} <= names_of_files]
    if len(both) == 1 and not splits and (parallel := _parallel(f"{folder / both[0]}", config)):
        return {"train": [parallel]}
    contents = listed(entry.name for entry in sorted(folder.iterdir())) or "no files"
    raise DataError(
        f"{folder} contains no training split that can be read: name it train.jsonl, .parquet, .csv or .tsv, "
        f"or train.{config.src} and train.{config.tgt}, or choose a file. The folder contains {contents}."
    )


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


def _built_in(config: DataConfig) -> Source:
    path = config.path
    if path not in BUILT_IN:
        raise DataError(
            f"data.path: there is no built-in corpus {path!r}, only {', '.join(BUILT_IN)}."
            f"{did_you_mean(path, BUILT_IN)}"
        )
    num_train_pairs = config.num_train_pairs or BUILT_IN[path]
    if path == PRIMER and ({config.src, config.tgt} != {"en", "de"} or num_train_pairs > MAX_TRAIN_PAIRS):
        raise DataError(
            f"{PRIMER} is English and German, with {MAX_TRAIN_PAIRS:,} training pairs: data.src and data.tgt "
            f"must be en and de, not {config.src!r} and {config.tgt!r}, data.num_train_pairs at most that."
        )
    splits: dict[Split, list[Part]] = {}
    for split, size in zip(SPLITS, (num_train_pairs, 500, 1_000), strict=True):
        if path == PRIMER:
            pairs = primer_pairs(split, size)
            pairs = pairs if config.src == "en" else ((de, en) for en, de in pairs)
        else:
            pairs = reverse_pairs(split, size, characters=path == REVERSE_CHARACTERS)
        numbered = ((number, *pair) for number, pair in enumerate(pairs, start=1))
        version = PRIMER_VERSION if path == PRIMER else REVERSE_VERSION
        splits[split] = [Part(f"{path}, {split}", "row", numbered, version=f"version {version}")]
    return Source("built-in", splits)
