"""What ``data.path`` means: a built-in corpus, something on disk, or a corpus on the Hugging Face Hub."""

import glob
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from mt.builtin.primer import MAX_TRAIN_PAIRS, PRIMER_VERSION, primer_pairs
from mt.builtin.reverse import REVERSE_VERSION, reverse_pairs
from mt.config.data import IMPORTED, DataConfig
from mt.config.sources import parse_mix
from mt.data.sources.hub import HUB_ID, hub_source, saved_splits
from mt.data.sources.read import (
    TABLE_FORMATS,
    parallel_part,
    table_format,
    table_part,
    text_lines,
)
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

# train.jsonl, train.csv.gz, or a shard of a large table: train-00000-of-00003.parquet
TABLE_NAME = re.compile(r"(?P<split>.+?)(-\d+-of-(?P<num_shards>\d+))?(?P<suffix>\.\w+?(\.gz)?)")
LANGUAGES = re.compile(r"(?P<stem>.*)\.\{(?P<languages>[^{}/]*)\}(\.gz)?", re.DOTALL)
WILDCARD = re.compile(r"[*?[]")


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
    for source_config, _ in mixed_sources(config):
        with suppress(DataError):
            if source := _on_disk(source_config):
                parts = (part for split in splits for part in source.splits.get(split, ()))
                files |= {file.resolve() for part in parts for file in part.files}
    return files


def find_source(config: DataConfig) -> Source:
    """The corpus that ``config.path`` names; files on disk are preferred to the Hub."""
    if config.src == config.tgt:
        raise ConfigError(
            f"data.src and data.tgt are both {config.src!r}: name the two languages of the corpus."
        )
    if config.path == IMPORTED:
        raise DataError("the run was imported and has no corpus of its own: name one with --data.")
    source = _built_in(config) if config.path.startswith(PREFIX) else _on_disk(config)
    if source is not None:
        if config.name is not None or config.revision is not None:
            where = "built in" if source.kind == "built-in" else "on disk"
            LOG.warning(
                "data.name and data.revision have no effect: they are for a corpus on the Hub, but %s is %s",
                config.path,
                where,
            )
        return source
    hub_id = LEGACY_NAMES.get(config.path, config.path)
    if HUB_ID.fullmatch(hub_id) and table_format(Path(hub_id), config.delimiter) is None:
        return hub_source(hub_id, config)
    missing = next((str(path) for path in _two_paths(config.path) if not path.exists()), config.path)
    path = named_path(missing)
    raise DataError(
        f"data.path: there is no file or folder {missing!r}, nor {missing}.{config.src} with "
        f"{missing}.{config.tgt}. It may be a folder, a file, a pattern such as part-*.jsonl, two text "
        f"files as in en.txt,de.txt, a Hub id such as bentrevett/multi30k, {PRIMER} or {REVERSE}."
        f"{did_you_mean(str(path), [*_neighbours(path, config.src), *LEGACY_NAMES])}"
    )


def _on_disk(config: DataConfig) -> Source | None:
    """The corpus on disk that ``config.path`` names; None if there is no such file or folder."""
    path, two_paths = named_path(config.path), _two_paths(config.path)
    sides = [Path(f"{path}.{language}") for language in (config.src, config.tgt)]
    try:
        for pipe in (path, *two_paths, *sides, *(path.iterdir() if path.is_dir() else ())):
            if pipe.is_fifo():
                raise DataError(
                    f"{pipe} is a pipe, which can be read only once, while a corpus is read again, as when "
                    "its run is resumed. Write what comes through it to a file, and give that."
                )
        if two_paths and all(file.is_file() for file in two_paths):
            return Source("parallel text", {"train": [_two_files(*two_paths)]})
        if path.is_dir():
            return Source("folder", _folder_splits(path, config))
        if path.is_file():
            part = _part(path, config)
            return Source("file" if len(part.files) == 1 else "parallel text", {"train": [part]})
        if parallel := _parallel(path, config):
            return Source("parallel text", {"train": [parallel]})
        if WILDCARD.search(str(path)) or LANGUAGES.fullmatch(str(path)):
            return Source("files", {"train": _matching_parts(str(path), config)})
    except OSError as error:
        raise unreadable(config.path, error) from None
    return None


def _two_paths(text: str) -> list[Path]:
    """The two paths of ``english.txt,german.txt``; none in a text without a comma."""
    names = [name.strip() for name in text.split(",")]
    return [named_path(name) for name in names] if len(names) == 2 and all(names) else []


def _two_files(src_path: Path, tgt_path: Path) -> Part:
    for path in (src_path, tgt_path):
        if table_format(path) is not None:
            raise DataError(
                f"data.path names two files, which are read as the two sides of a parallel text, but {path} "
                "is a table, which has both. Give one table, a folder, or a pattern such as part-*.csv."
            )
    return parallel_part(src_path, tgt_path)


def _neighbours(path: Path, src: str) -> list[str]:
    """Existing names beside ``path``, one of which may have been meant."""
    try:
        names = [entry.name.removesuffix(f".{src}") for entry in sorted(path.parent.iterdir())]
    except OSError:
        return []
    return [str(path.with_name(name)) for name in names if not name.startswith(".")]


def _part(path: Path, config: DataConfig) -> Part:
    """The table at ``path``, or the parallel text of which it is one side."""
    if table_format(path, config.delimiter) is not None and path.is_file():
        return table_part(path, config)
    name = str(path).removesuffix(".gz")
    for language in (config.src, config.tgt):
        if name.endswith(f".{language}") and (
            parallel := _parallel(Path(name[: -len(language) - 1]), config)
        ):
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
    if splits := saved_splits(folder, config) or _named_splits(folder, config):
        if "train" in splits:
            return splits
    else:
        inside = [
            entry for entry in sorted(folder.iterdir()) if entry.is_dir() and not entry.name.startswith(".")
        ]
        subfolders = [subfolder for subfolder in inside if "train" in _named_splits(subfolder, config)]
        stems = _parallel_stems(folder, config)
        if len(subfolders) + len(stems) == 1:
            for subfolder in subfolders:
                return _named_splits(subfolder, config)
            parallel = _parallel(stems[0], config)
            assert parallel
            return {"train": [parallel]}
        if subfolders or stems:
            corpora = ", ".join(map(str, [*subfolders, *stems]))
            raise DataError(f"{folder} contains several corpora. Choose one as data.path: {corpora}.")
    contents = [entry.name + "/" * entry.is_dir() for entry in sorted(folder.iterdir())]
    raise DataError(
        f"{folder} contains no training split that can be read: name it train.jsonl, train.parquet, "
        f"train.csv, train.tsv, or train.{config.src} and train.{config.tgt}. "
        f"The folder contains {listed(contents) or 'no files'}."
    )


def _parallel_stems(folder: Path, config: DataConfig) -> list[Path]:
    """The parallel texts of a folder without the extensions of their languages, such as Books.de-en."""
    names = {entry.name.removesuffix(".gz") for entry in folder.iterdir() if entry.is_file()}
    stems = (name.removesuffix(f".{config.src}") for name in sorted(names) if name.endswith(f".{config.src}"))
    return [folder / stem for stem in stems if f"{stem}.{config.tgt}" in names]


def _named_splits(folder: Path, config: DataConfig) -> dict[Split, list[Part]]:
    """The splits whose files are named after them."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    splits: dict[Split, list[Part]] = {}
    for split, names in SPLIT_NAMES.items():
        forms = [parts for name in names for parts in _forms(folder, files, name, config)]
        if len(forms) > 1:
            raise _is_repeated(f"{folder} contains the {split} split", [parts[0].where for parts in forms])
        if forms:
            splits[split] = forms[0]
    return splits


def _forms(folder: Path, files: list[Path], split_name: str, config: DataConfig) -> list[list[Part]]:
    """All files of a split, in each form that the folder has: a table, a sharded table, parallel text."""
    tables: dict[tuple[str, str | None], list[Path]] = defaultdict(list)
    for file in files:
        parsed = TABLE_NAME.fullmatch(file.name)
        if parsed and parsed["split"] == split_name and table_format(file, config.delimiter) is not None:
            tables[parsed["suffix"], parsed["num_shards"]].append(file)
    for (suffix, num_shards), shards in tables.items():
        if num_shards is not None and len(shards) != int(num_shards):
            raise DataError(
                f"{folder} contains {len(shards)} of the {int(num_shards)} shards of {split_name}{suffix}: "
                "fetch the missing ones."
            )
    forms = [[table_part(shard, config) for shard in shards] for shards in tables.values()]
    parallel = _parallel(folder / split_name, config)
    return [*forms, [parallel]] if parallel else forms


def _parallel(stem: Path, config: DataConfig) -> Part | None:
    """The parallel text whose files begin with ``stem``, or None if both are missing."""
    # Not with_name: a column that data.src names may have a slash.
    paths = {
        language: [Path(f"{stem}.{language}{packed}") for packed in ("", ".gz")]
        for language in (config.src, config.tgt)
    }
    sides = {language: [path for path in both if path.is_file()] for language, both in paths.items()}
    for language, files in sides.items():
        if len(files) > 1:
            raise _is_repeated(f"{stem} has the side .{language}", map(str, files))
        if not files and any(sides.values()):
            present = next(file for both in sides.values() for file in both)
            raise DataError(f"{present} has no counterpart: {stem}.{language} is missing.")
    return parallel_part(*(files[0] for files in sides.values())) if any(sides.values()) else None


def _matching_parts(pattern: str, config: DataConfig) -> list[Part]:
    """The parts of all files that ``pattern`` matches, sorted by name.

    ``*``, ``?`` and ``[abc]`` work as in a shell, and ``**`` matches any number of folders. For parallel text
    the pattern may match either side, or be the stem with both extensions in braces.
    """
    # Not Path.glob: that also matches hidden files, and refuses patterns that a shell accepts.
    if braces := LANGUAGES.fullmatch(pattern):
        languages = [language.strip() for language in braces["languages"].split(",")]
        endings = [f".{language}{packed}" for language in languages for packed in ("", ".gz")]
        stems = {
            match.removesuffix(ending)
            for ending in endings
            for match in glob.glob(braces["stem"] + ending, recursive=True)  # noqa: PTH207
        }
        matches = [stem + endings[0] for stem in sorted(stems)]
    else:
        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
    parts: dict[str, Part] = {}
    for match in matches:
        part = _part(Path(match), config)
        known = parts.setdefault(part.where.removesuffix(".gz"), part)
        if known.where != part.where:
            raise _is_repeated(f"{pattern} matches the same table", [part.where, known.where])
    if not parts:
        raise DataError(f"No file matches {pattern}: check the folder and the pattern.")
    return list(parts.values())


def _is_repeated(what: str, names: Iterable[str]) -> DataError:
    return DataError(f"{what} more than once: {' or '.join(names)}. Keep only one of them.")


def _built_in(config: DataConfig) -> Source:
    path, src, tgt = config.path, config.src, config.tgt
    if path not in NUM_PAIRS:
        raise DataError(
            f"data.path: there is no built-in corpus {path!r}, only {', '.join(NUM_PAIRS)}."
            f"{did_you_mean(path, NUM_PAIRS)}"
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
    return Source("built-in", {split: [_built_in_part(path, split, sizes[split], src)] for split in SPLITS})


def _built_in_part(path: str, split: Split, num_pairs: int, src: str) -> Part:
    version = PRIMER_VERSION if path == PRIMER else REVERSE_VERSION
    if path == PRIMER:
        pairs = primer_pairs(split, num_pairs)
        pairs = pairs if src == "en" else ((de, en) for en, de in pairs)
    else:
        pairs = reverse_pairs(split, num_pairs, characters=path == REVERSE_CHARACTERS)
    numbered = ((number, *pair) for number, pair in enumerate(pairs, start=1))
    return Part(f"{path}, {split}", "row", numbered, version=f"version {version}")
