"""The directions that `mt init` is asked for, and the data of a config that has all of them."""

import re
from collections.abc import Mapping
from pathlib import Path

from mt.data.sources.source import named_path
from mt.errors import ConfigError
from mt.sides import Sides

TEMPERATURE = 5.0
"""Small directions are shown nearly as often as large ones; the usual value (Arivazhagan et al. 2019)."""

_LANGUAGE = r"[a-z]{2,3}(?:_\w+)?"
_FOLDER = re.compile(f"{_LANGUAGE}-{_LANGUAGE}", re.ASCII)


def asked_directions(
    data: str | None, src: str | None, tgt: str | None, *, both_ways: bool
) -> list[Sides[str]]:
    """Each of ``src`` to each of ``tgt``, or those that folders in ``data`` are named after, perhaps none."""
    directions: list[Sides[str]] = []
    if src and tgt:
        sources, targets = _names(src), _names(tgt)
        for source in sources:
            if source in targets:
                raise ConfigError(f"--src and --tgt are both {source!r}: name two languages.")
            for target in targets:
                directions.append(Sides(source, target))
    elif data and not (src or tgt):
        for folder in _folders(data):
            directions.append(Sides(*folder.split("-")))
    if both_ways:
        for direction in [*directions]:
            directions.append(Sides(direction.tgt, direction.src))
    return [*dict.fromkeys(directions)]


def _names(text: str) -> list[str]:
    """The languages of a list such as ``de,fr``."""
    names = [name.strip() for name in text.split(",")]
    if "" in names or len({*names}) < len(names):
        raise ConfigError(f"{text!r}: name each language once, such as --tgt de,fr.")
    return names


def _folders(data: str) -> list[str]:
    """The names of the folders in ``data`` that are those of a direction, unless it is a corpus itself."""
    folder = named_path(data)
    names: list[str] = []
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_file() and entry.name.lower().startswith("train"):
            return []
        if entry.is_dir() and _FOLDER.fullmatch(entry.name):
            names.append(entry.name)
    return sorted(names)


def data_of_directions(given: Mapping[str, str], directions: list[Sides[str]]) -> dict[str, object]:
    """The keys of ``data``, where the first direction is that of the run and the others are ``sources``."""
    if len(directions) > 1 and "columns" in given:
        raise ConfigError("--columns is for one direction: of several, --src and --tgt name the columns.")
    folders = _folders(given["path"])
    keys: dict[str, dict[str, object]] = {}
    for src, tgt in directions:
        # A folder may be read in both directions. Without any, one corpus has all languages.
        path = given["path"]
        if f"{src}-{tgt}" in folders:
            path = str(Path(path) / f"{src}-{tgt}")
        elif f"{tgt}-{src}" in folders:
            path = str(Path(path) / f"{tgt}-{src}")
        elif folders and len(directions) > 1:
            raise ConfigError(f"{path} has {', '.join(folders)}, but neither {src}-{tgt} nor {tgt}-{src}.")
        # A language may be the name of a field, such as text.en.
        name = re.sub(r"[^\w-]", "_", f"{src}-{tgt}")
        keys[name] = {**given, "path": path, "src": src, "tgt": tgt}
    own = keys.pop(next(iter(keys)))
    if keys:
        own |= {"sources": keys, "temperature": TEMPERATURE}
    return own
