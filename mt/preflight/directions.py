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
        sources, targets = ([name.strip() for name in names.split(",")] for names in (src, tgt))
        if twice := next((name for name in sources if name in targets), None):
            raise ConfigError(f"--src and --tgt are both {twice!r}: name two languages.")
        for side in (sources, targets):
            if "" in side or len({*side}) < len(side):
                raise ConfigError(f"{','.join(side)!r}: name each language once, such as --tgt de,fr.")
        directions = [Sides(source, target) for source in sources for target in targets]
    elif data and not (src or tgt):
        directions = [Sides(*folder.split("-")) for folder in _folders(data)]
    if both_ways:
        directions += [Sides(tgt, src) for src, tgt in directions]
    return [*dict.fromkeys(directions)]


def _folders(data: str) -> list[str]:
    """The names of the folders in ``data`` that are those of a direction, unless it is a corpus itself."""
    folder = named_path(data)
    inside = [*folder.iterdir()] if folder.is_dir() else []
    if any(entry.is_file() and entry.name.lower().startswith("train") for entry in inside):
        return []
    return sorted(entry.name for entry in inside if entry.is_dir() and _FOLDER.fullmatch(entry.name))


def data_of_directions(given: Mapping[str, str], directions: list[Sides[str]]) -> dict[str, object]:
    """The keys of ``data``, where the first direction is that of the run and the others are ``sources``."""
    if len(directions) > 1 and "columns" in given:
        raise ConfigError("--columns is for one direction: of several, --src and --tgt name the columns.")
    folders = _folders(given["path"])
    keys: dict[str, dict[str, object]] = {}
    for src, tgt in directions:
        # A folder may be read in both directions. Without any, one corpus has all languages.
        path = given["path"]
        found = [name for name in (f"{src}-{tgt}", f"{tgt}-{src}") if name in folders]
        if found:
            path = str(Path(path) / found[0])
        elif folders and len(directions) > 1:
            raise ConfigError(f"{path} has {', '.join(folders)}, but neither {src}-{tgt} nor {tgt}-{src}.")
        # A language may be the name of a field, such as text.en.
        keys[re.sub(r"[^\w-]", "_", f"{src}-{tgt}")] = {**given, "path": path, "src": src, "tgt": tgt}
    own, *others = keys
    more = {"sources": {name: keys[name] for name in others}, "temperature": TEMPERATURE}
    return {**keys[own], **(more if others else {})}
