"""Corpora of many files: ``corpus/*.jsonl.gz``, ``part-*`` or ``part-*.{en,de}`` for parallel text."""

import glob
import re
from pathlib import Path

from mt.config.data import DataConfig
from mt.data.sources.files import table_format, table_part
from mt.data.sources.local import find_parallel
from mt.data.sources.source import Part, Source, listed
from mt.errors import DataError

LANGUAGES = re.compile(r"(?P<stem>.*)\.\{(?P<languages>[^{}/]*)\}(\.gz)?", re.DOTALL)
WILDCARD = re.compile(r"[*?[]")


def find_pattern(pattern: str, config: DataConfig) -> Source | None:
    """All files that ``pattern`` matches, in the order of their names, or None where it is a plain name.

    ``*``, ``?`` and ``[abc]`` are those of a shell, and ``**`` is any number of folders. Of parallel text the
    pattern may match either side, or be the stem with both endings in braces.

    Raises:
        DataError: If nothing matches, or something that is no corpus does.
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
    for match in matches:
        name, part = _part(match, pattern, config)
        if name in parts and part.where != parts[name].where:
            raise DataError(
                f"{pattern} matches both {part.where} and {parts[name].where}: keep one of them there, or "
                "narrow the pattern, so that nothing is read twice."
            )
        parts[name] = part
    if not parts:
        raise DataError(f"No file matches {pattern}{_what_is_there(pattern)}.")
    return Source("files", {"train": list(parts.values())})


def _stems(stem: str, src: str, tgt: str) -> list[str]:
    """What ``stem`` stands for: the names of those files that have one of the endings, without these."""
    endings = (f".{src}", f".{tgt}", f".{src}.gz", f".{tgt}.gz")
    return sorted({match.removesuffix(end) for end in endings for match in _matches(stem + end)})


def _matches(pattern: str) -> list[str]:
    # Not Path.glob: that takes hidden files too, and refuses patterns that a shell takes.
    return sorted(glob.glob(pattern, recursive=True)) if "\0" not in pattern else []  # noqa: PTH207


def _part(match: str, pattern: str, config: DataConfig) -> tuple[str, Part]:
    """The part that a file belongs to, and its name, which both sides of a parallel text share."""
    path = Path(match)
    src, tgt = config.src, config.tgt
    if table_format(path, config) is not None and not path.is_dir():
        return match.removesuffix(".gz"), table_part(path, config)
    for language in (src, tgt):
        stem = path.with_name(path.name.removesuffix(".gz").removesuffix(f".{language}"))
        if stem.name != path.name.removesuffix(".gz") and (parallel := find_parallel(stem, src, tgt)):
            return str(stem), parallel
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
    names = sorted(entry.name for entry in folder.iterdir())
    return f": {folder} holds {listed(names, most=5) or 'no files'}"
