"""Reads a YAML file and overrides into a ``Config``, or explains what is wrong; finds the recipes."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from mt.config.config import Config
from mt.config.explain import SECTIONS, explain, takes_text, unknown_key
from mt.config.located_yaml import KeyPath, Location, one_short_line, read_yaml
from mt.config.removed import without_removed
from mt.config.section import closest
from mt.errors import ConfigError
from mt.files import read_text

MAX_CONFIG_BYTES = 1_000_000

_PACKAGE = Path(__file__).parent.parent
# In a wheel the recipes are inside the package; in the repository, next to it.
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
FIRST = "quickstart"


def load_config(path: str | Path, overrides: Sequence[str] = (), *, label: str = "override") -> Config:
    """Read a config, and change single options of it.

    Args:
        path: A YAML file.
        overrides: Each ``section.key=value``, the value as in the file, except that a number for an option
            that takes text needs no quotes; of two for one key the later wins.
        label: What an error calls an override, such as the flag that it was given with.

    Raises:
        ConfigError: If the file or an override cannot be used; its message lists everything that is wrong,
            one error per line.
    """
    path = Path(path)
    value, locations = read_yaml(_read(path), lambda line: f"{path}, line {line}")
    if value is None:
        raise ConfigError(
            f"{path}: this file is empty. A config needs data.path, data.src and data.tgt at least."
        )
    if not isinstance(value, dict):
        raise ConfigError(
            f"{path}: a config is made of sections such as 'data:' with keys beneath them, "
            f"but this file holds {locations[()].written}."
        )
    # A section that is missing, or has nothing beneath it, leaves every key at its default.
    sections = value | {name: {} for name in SECTIONS if value.get(name) is None}
    for override in overrides:
        _apply(override, sections, locations, f"{label} {one_short_line(override)}")
    try:
        return Config.model_validate({name: without_removed(name, keys) for name, keys in sections.items()})
    except ValidationError as error:
        raise ConfigError(explain(error, locations, str(path))) from error


def _apply(
    override: str, sections: dict[str, object], locations: dict[KeyPath, Location], where: str
) -> None:
    """Set one key to the value of an override, and its location to ``where``."""
    dotted, equals, text = override.partition("=")
    section, _, key = dotted.strip().partition(".")
    if not equals or not section or (section in SECTIONS and not key):
        raise ConfigError(f"{where}: the form is section.key=value, such as training.seed=2.")
    if section not in SECTIONS:
        raise ConfigError(f"{where}: {unknown_key((section,))}")
    value, written = read_yaml(text, lambda _: where)
    if "#" in text and "#" not in str(value):
        raise ConfigError(
            f"{where}: YAML takes what follows # for a comment: put the value in quotes, such as "
            f"--set '{dotted}=\"a #b\"'."
        )
    field = SECTIONS[section].get(key)
    # A shell removes the quotes that a number needs in the file in order to be text.
    if field is not None and takes_text(field) and isinstance(value, int | float):
        value = text.strip()
    keys = sections[section]
    if isinstance(keys, dict):  # If it is not, validation reports it.
        keys[key] = value
        # Removed first, so that overrides come after the file in the order of locations.
        locations.pop((section, key), None)
        locations[section, key] = Location(where, written[()].written if written else "")


def _read(path: Path) -> str:
    try:
        return read_text(path, max_bytes=MAX_CONFIG_BYTES)
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: this is a folder. Give a config file{_such_as(path)}.") from error
    except FileNotFoundError as error:
        problem = f"{path}: there is no such file"
        if path.stem in recipe_files():
            raise ConfigError(
                f"{problem}, but there is a recipe named {path.stem}. Write it to a file with "
                f"mt init --recipe {path.stem} > {path.name}."
            ) from error
        neighbours = {file.name: file for file in _configs_in(path.parent)}
        if name := closest(path.name, neighbours):
            raise ConfigError(f"{problem}. Did you mean '{neighbours[name]}'?") from error
        raise ConfigError(f"{problem}. Give a config file{_such_as(path.parent)}.") from error
    except OSError as error:
        raise ConfigError(f"{path}: this file cannot be read: {error.strerror}.") from error


def _such_as(folder: Path) -> str:
    return next((f", such as '{file}'" for file in _configs_in(folder)), "")


def _configs_in(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def recipe_files() -> dict[str, Path]:
    """The file of each recipe, by its name; none if the package came without them."""
    folder = next((folder for folder in _FOLDERS if (folder / f"{FIRST}.yaml").is_file()), None)
    return {} if folder is None else {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def recipe_list() -> str:
    """Each recipe and the first sentence of its comment, one per line."""
    files = recipe_files()
    width = max(map(len, files), default=0)
    return "".join(f"{name:{width}}  {_first_sentence(file)}\n" for name, file in files.items())


def _first_sentence(file: Path) -> str:
    head = file.read_text(encoding="utf-8").split("\n#\n", 1)[0]
    text = " ".join(line.lstrip("# ") for line in head.splitlines())
    return re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]
