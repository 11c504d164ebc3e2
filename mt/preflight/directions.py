"""The directions that `mt init` is asked for, and the data of a config that has all of them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mt.config.data import SOURCE_NAME
from mt.data.sources.source import named_path
from mt.errors import ConfigError
from mt.sides import Sides

TEMPERATURE = 5.0
"""Of several directions: small ones are shown about as often as large ones, as in Arivazhagan et al. 2019."""

_LANGUAGE = r"([a-z]{2,3}(?:_\w+)?)"
_FOLDER = re.compile(f"{_LANGUAGE}-{_LANGUAGE}", re.ASCII)


def asked_directions(
    data: str | None, src: str | None, tgt: str | None, *, both_ways: bool
) -> list[Sides[str]]:
    """Each of ``src`` to each of ``tgt``, or those that folders in ``data`` are named after, perhaps none."""
    directions: list[Sides[str]] = []
    if src and tgt:
        sources, targets = _languages("--src", src), _languages("--tgt", tgt)
        for language in sources:
            if language in targets:
                raise ConfigError(f"--src and --tgt are both {language!r}: name two languages.")
        directions = [Sides(source, target) for source in sources for target in targets]
    elif data and not (src or tgt):
        directions = [Sides(*name.split("-")) for name in _folders(data)]
    if both_ways:
        directions += [Sides(tgt, src) for src, tgt in directions]
    directions = [*dict.fromkeys(directions)]
    for direction in directions if len(directions) > 1 else ():
        for language in direction:
            if not SOURCE_NAME.fullmatch(language):
                raise ConfigError(
                    f"--src and --tgt: {language!r} cannot be one of several languages, whose names have "
                    "letters, digits, - and _."
                )
    return directions


def _languages(option: str, text: str) -> list[str]:
    languages = [language.strip() for language in text.split(",")]
    for language in languages:
        if not language or languages.count(language) > 1:
            what = f"{language!r} twice" if language else "no language before or after a comma"
            raise ConfigError(f"{option} {text}: it names {what}. Name each once, as in {option} de,fr.")
    return languages


def _folders(data: str) -> list[str]:
    """The names of the folders in ``data`` that are those of a direction, such as en-de."""
    if not named_path(data).is_dir():
        return []
    folders = (folder.name for folder in named_path(data).iterdir() if folder.is_dir())
    return sorted(name for name in folders if _FOLDER.fullmatch(name))


def data_of_directions(given: Mapping[str, str], directions: Sequence[Sides[str]]) -> dict[str, object]:
    """The keys of ``data``, where the first direction is that of the run and the others are ``sources``."""
    if len(directions) > 1 and "columns" in given:
        raise ConfigError(
            "--columns names the columns of one direction: of several, --src and --tgt name the columns."
        )
    data, folders = given["path"], _folders(given["path"])
    sources: dict[str, dict[str, object]] = {}
    for src, tgt in directions:
        name = f"{src}-{tgt}"
        # A folder may be read in both directions. Without any, ``data`` has all languages.
        found = [folder for folder in (name, f"{tgt}-{src}") if folder in folders]
        if folders and not found and len(directions) > 1:
            raise ConfigError(
                f"{data} has the folders {', '.join(folders)}, but neither {name} nor {tgt}-{src}."
            )
        path = str(Path(data) / found[0]) if found else data
        sources[name] = {**given, "path": path, "src": src, "tgt": tgt}
    own, *others = sources
    if not others:
        return sources[own]
    return {**sources.pop(own), "sources": sources, "temperature": TEMPERATURE}
