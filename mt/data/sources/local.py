"""Finding the files of a corpus on disk: a folder, one file, or the stem of parallel text."""

import glob
import re
from collections import defaultdict
from pathlib import Path

from mt.config.data import DataConfig
from mt.data.sources.files import TABLE_FORMATS, parallel_part, table_format, table_part
from mt.data.sources.source import SPLIT_NAMES, Part, Source, Split, did_you_mean, listed
from mt.display import visible
from mt.errors import DataError
from mt.files import is_utf8, named_path

# train.jsonl, train.csv.gz, or a shard of a large table: train-00000-of-00003.parquet
TABLE_NAME = re.compile(r"(?P<split>.+?)(-\d+-of-(?P<num_pieces>\d+))?(?P<suffix>\.\w+?(\.gz)?)")
LANGUAGES = re.compile(r"(?P<stem>.*)\.\{(?P<languages>[^{}/]*)\}(\.gz)?", re.DOTALL)
WILDCARD = re.compile(r"[*?[]")


def find_local(path: Path, config: DataConfig) -> Source | None:
    """The corpus at ``path``, or None if there is no such file or folder."""
    try:
        if path.is_dir():
            return Source("folder", _folder_splits(path, config))
        if path.is_file():
            return Source("file", {"train": [_file_part(path, config)]})
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    if parallel := find_parallel(path, config.src, config.tgt):
        return Source("parallel text", {"train": [parallel]})
    return None


def neighbours(path: Path, src: str) -> list[str]:
    """Existing names beside ``path``, one of which may have been meant."""
    try:
        names = [entry.name.removesuffix(f".{src}") for entry in sorted(path.parent.iterdir())]
    except OSError:
        return []
    return [str(path.with_name(name)) for name in names if not name.startswith(".")]


def are_two_files(text: str) -> bool:
    """Whether ``text`` consists of the names of two existing files, with a comma between them."""
    try:
        return (paths := _two_paths(text)) is not None and all(path.is_file() for path in paths)
    except OSError:
        return False


def _two_paths(text: str) -> tuple[Path, Path] | None:
    names = [name.strip() for name in text.split(",")]
    return (named_path(names[0]), named_path(names[1])) if len(names) == 2 and all(names) else None


def find_two_files(text: str, config: DataConfig) -> Source | None:
    """Two text files with any names, as in ``english.txt,german.txt``, or None if there is no comma."""
    paths = _two_paths(text)
    if paths is None:
        return None
    # What separates the columns of a table says nothing about the sides of a parallel text.
    undelimited = config.model_copy(update={"delimiter": "auto"})
    for path in paths:
        if table_format(path, undelimited) is not None:
            raise DataError(
                f"data.path names two files, which are read as the two sides of a parallel text, but {path} "
                "is a table, which has both. Give one table, a folder, or a pattern such as part-*.csv."
            )
        if not path.is_file():
            close = did_you_mean(str(path), neighbours(path, ""))
            raise DataError(f"data.path names two files, but there is no file {str(path)!r}.{close}")
    if paths[0].samefile(paths[1]):
        raise DataError(
            f"data.path names one file twice, {str(paths[0])!r}, so source and target would be the same: "
            "name the source's file, then the target's."
        )
    return Source("parallel text", {"train": [parallel_part(*paths)]})


def _file_part(path: Path, config: DataConfig) -> Part:
    if table_format(path, config) is not None:
        return table_part(path, config)
    src, tgt = config.src, config.tgt
    for language in (src, tgt):
        for ending in (f".{language}", f".{language}.gz"):
            if path.name.endswith(ending):
                raise DataError(
                    f"{path} is one side of a parallel text: set data.path to the name that both sides "
                    f"share, {str(path).removesuffix(ending)}."
                )
    raise DataError(
        f"{path} has no extension that shows its format: use {', '.join(TABLE_FORMATS)} (and .gz), or "
        f"give plain text as two files such as {path.stem}.{src} and {path.stem}.{tgt}, or any two, as "
        "data.path: SOURCE.txt,TARGET.txt. If each line of a .txt file has both sides, set data.delimiter "
        "to what separates them, such as tab."
    )


def _folder_splits(folder: Path, config: DataConfig) -> dict[Split, list[Part]]:
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    splits: dict[Split, list[Part]] = {}
    for split, names in SPLIT_NAMES.items():
        found = [parts for name in names for parts in _find_parts(folder, files, name, config)]
        if len(found) > 1:
            raise DataError(
                f"{folder} contains the {split} split more than once: "
                f"{' or '.join(parts[0].where for parts in found)}. Keep only one of them."
            )
        if found:
            splits[split] = found[0]
    if "train" not in splits:
        raise DataError(
            f"{folder} contains no training split that can be read: name it train.jsonl, train.parquet, "
            f"train.csv, train.tsv, or train.{config.src} and train.{config.tgt}. "
            f"The folder contains {listed(file.name for file in files) or 'no files'}."
        )
    return splits


def _find_parts(folder: Path, files: list[Path], split_name: str, config: DataConfig) -> list[list[Part]]:
    """All files of a split, in each form that the folder has: a table, a sharded table, parallel text."""
    tables: dict[tuple[str, str | None], list[Path]] = defaultdict(list)
    for file in files:
        parsed = TABLE_NAME.fullmatch(file.name)
        if parsed and parsed["split"] == split_name and table_format(file, config) is not None:
            tables[parsed["suffix"], parsed["num_pieces"]].append(file)
    for (suffix, num_pieces), pieces in tables.items():
        if num_pieces is not None and len(pieces) != int(num_pieces):
            raise DataError(
                f"{folder} contains {len(pieces)} of the {int(num_pieces)} shards of {split_name}{suffix}: "
                f"fetch the missing ones."
            )
    found = [[table_part(piece, config) for piece in pieces] for pieces in tables.values()]
    if parallel := find_parallel(folder / split_name, config.src, config.tgt):
        found.append([parallel])
    return found


def find_parallel(stem: Path, src: str, tgt: str) -> Part | None:
    """The parallel text whose files begin with ``stem``, or None if both are missing."""
    src_path, tgt_path = _text_file(stem, src), _text_file(stem, tgt)
    if src_path is None and tgt_path is None:
        return None
    if src_path is None or tgt_path is None:
        missing = src if src_path is None else tgt
        raise DataError(f"{src_path or tgt_path} has no counterpart: {stem}.{missing} is missing.")
    return parallel_part(src_path, tgt_path)


def _text_file(stem: Path, language: str) -> Path | None:
    # Not with_name: a column that data.src names may have a slash.
    paths = [Path(f"{stem}.{language}{packed}") for packed in ("", ".gz")]
    found = [path for path in paths if path.is_file()]
    if len(found) > 1:
        raise DataError(f"{found[0]} exists plain and packed (.gz): keep only one of them.")
    return found[0] if found else None


def find_pattern(pattern: str, config: DataConfig) -> Source | None:
    """All files that ``pattern`` matches, sorted by name, or None if it is a plain name.

    ``*``, ``?`` and ``[abc]`` work as in a shell, and ``**`` matches any number of folders. For parallel text
    the pattern may match either side, or be the stem with both extensions in braces.
    """
    src, tgt = config.src, config.tgt
    braces = LANGUAGES.fullmatch(pattern)
    if braces:
        languages = [language.strip() for language in braces["languages"].split(",")]
        if sorted(languages) != sorted((src, tgt)):
            raise DataError(
                f"{pattern} names the languages {listed(languages)}, but data.src and data.tgt are {src!r} "
                f"and {tgt!r}: write .{{{src},{tgt}}}."
            )
        matches = [f"{stem}.{src}" for stem in _stems(braces["stem"], src, tgt)]
    elif WILDCARD.search(pattern):
        matches = _matches(pattern)
    else:
        return None
    parts: dict[str, Part] = {}
    # A link, or a pattern with "..", may have another name for the same files.
    part_of_files: dict[tuple[Path, ...], Part] = {}
    for match in matches:
        if not is_utf8(Path(match)):
            raise DataError(f"{pattern} matches {visible(match)}, whose name is not UTF-8: rename it.")
        name, part = _part(match, pattern, config)
        files = tuple(file.resolve() for file in part.files)
        known = parts.get(name, part_of_files.get(files, part))
        if part.where != known.where:
            raise DataError(
                f"{pattern} matches both {part.where} and {known.where}: keep only one of them, or "
                "narrow the pattern, so that nothing is read twice."
            )
        parts[name] = part_of_files[files] = part
    if not parts:
        raise DataError(f"No file matches {pattern}{_what_is_there(pattern)}.")
    return Source("files", {"train": list(parts.values())})


def _stems(stem: str, src: str, tgt: str) -> list[str]:
    """The names that ``stem`` matches with one of the extensions, without the extensions."""
    endings = (f".{src}", f".{tgt}", f".{src}.gz", f".{tgt}.gz")
    return sorted({match.removesuffix(end) for end in endings for match in _matches(stem + end)})


def _matches(pattern: str) -> list[str]:
    # Not Path.glob: that also matches hidden files, and refuses patterns that a shell accepts.
    return sorted(glob.glob(pattern, recursive=True)) if "\0" not in pattern else []  # noqa: PTH207


def _part(match: str, pattern: str, config: DataConfig) -> tuple[str, Part]:
    """The part that a file belongs to, and its name, which both sides of a parallel text share."""
    path, name = Path(match), match.removesuffix(".gz")
    src, tgt = config.src, config.tgt
    if table_format(path, config) is not None and path.is_file():
        return name, table_part(path, config)
    for language in (src, tgt):
        stem = name.removesuffix(f".{language}")
        if stem != name and (parallel := find_parallel(Path(stem), src, tgt)):
            return stem, parallel
    what = "a folder" if path.is_dir() else "neither a table nor parallel text"
    raise DataError(
        f"{pattern} matches {match}, which is {what}: narrow the pattern, as in *.jsonl or *.{{{src},{tgt}}}."
    )


def _what_is_there(pattern: str) -> str:
    folder = Path(pattern).parent
    while WILDCARD.search(str(folder)):
        folder = folder.parent
    if not folder.is_dir():
        return f": there is no folder {folder}"
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ""
    return f": {folder} contains {listed(names, most=5) or 'no files'}"
