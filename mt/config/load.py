"""Reads a YAML file and overrides into a ``Config``, or explains what is wrong; finds the recipes."""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from mt.config.config import Config
from mt.config.explain import SECTIONS, closest, explain, field_at, kinds_of
from mt.config.located_yaml import MAX_SHOWN, KeyPath, Location, plain_scalar, read_yaml
from mt.display import one_line, shown
from mt.errors import ConfigError
from mt.files import read_text

_MAX_BYTES = 1_000_000
# Options of earlier versions, with the value that changes nothing (... for any), at which they are ignored.
_REMOVED = {
    ("data", "seed"): 1,
    ("data", "workers"): ...,
    ("training", "bidirectional_epochs"): 0,
    ("training", "max_target_tokens"): None,
    ("training", "simcut"): 0,
    ("training", "simcut_share"): ...,
}
# Newer options, with what was done before: that is meant by a section that has all older options, as in the
# config.yaml of a run.
_ADDED_TO_CLEANING = {"invisible": "keep", "unescape_html": False, "skip_bad_rows": False}
_PACKAGE = Path(__file__).parent.parent
# In a wheel the recipes are inside the package; in the repository, next to it.
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a config, and change single options of it.

    Args:
        path: A YAML file.
        overrides: Each ``section.key=value``, the value as in the file but without quotes; of two for one
            key the later wins.

    Raises:
        ConfigError: If the file or an override cannot be used; its message lists everything that is wrong,
            one error per line.
    """
    path = Path(path)
    config, locations = read_yaml(_read(path), lambda line: f"{shown(path)}, line {line}")
    if not isinstance(config, dict):
        raise ConfigError(f"{shown(path)}: a config is made of sections, such as 'data:', with keys beneath.")
    # A section that is missing, or has nothing beneath it, leaves every key at its default.
    config |= {name: {} for name in SECTIONS if config.get(name) is None}
    for override in overrides:
        _apply(override, config, locations, f"--set {one_line(override, MAX_SHOWN)}")
    for (section, key), old_default in _REMOVED.items():
        keys = config[section]
        if isinstance(keys, dict) and old_default in (..., keys.get(key)):
            keys.pop(key, None)
    cleaning = config["cleaning"]
    older = SECTIONS["cleaning"].keys() - _ADDED_TO_CLEANING.keys()
    if isinstance(cleaning, dict) and older <= cleaning.keys():
        config["cleaning"] = _ADDED_TO_CLEANING | cleaning
    try:
        return Config.model_validate(config)
    except ValidationError as error:
        raise ConfigError(explain(error, locations, shown(path))) from error


def _apply(override: str, config: dict[str, object], locations: dict[KeyPath, Location], where: str) -> None:
    """Set one key to the value of an override, and its location to ``where``."""
    option, equals, text = override.partition("=")
    path = (*option.strip().split("."),)
    if not (len(path) > 1 and all(path) and equals):
        raise ConfigError(f"{where}: the form is section.key=value, such as training.seed=2.")
    text = text.strip()
    # A list is written as in the file.
    value = read_yaml(text, lambda line: where)[0] if re.fullmatch(r"\[.*\]", text) else plain_scalar(text)
    field = field_at(path)
    if field is not None and str in kinds_of(field) and isinstance(value, int | float):
        value = text
    keys: object = config
    for key in path[:-1]:
        if not isinstance(keys, dict):  # Validation reports it.
            return
        if keys.get(key) is None:
            keys[key] = {}
        keys = keys[key]
    if isinstance(keys, dict):
        keys[path[-1]] = value
    # Removed first, so that overrides come after the file in the order of locations.
    locations.pop(path, None)
    locations[path] = Location(where, one_line(text, MAX_SHOWN))
    for end in range(1, len(path)):
        locations.setdefault(path[:end], Location(where, ""))


def _read(path: Path) -> str:
    try:
        return read_text(path, max_bytes=_MAX_BYTES)
    except OSError as error:
        remedy = ""
        if path.stem in recipe_files():
            remedy = f" There is a recipe named {path.stem}: mt init --recipe {path.stem} > {path.name}."
        elif name := closest(path.name, {file.name for file in path.parent.glob("*.yaml")} - {path.name}):
            remedy = f" Did you mean {path.with_name(name)}?"
        raise ConfigError(f"{shown(path)}: this file cannot be read: {error.strerror}.{remedy}") from error


def recipe_files() -> dict[str, Path]:
    """The file of each recipe, by its name; none if the package came without them."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), _PACKAGE)
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def recipe_text(name: str) -> str:
    """The text of a recipe, or the names of all for ``list``."""
    files = recipe_files()
    if name == "list":
        return "".join(f"{known}\n" for known in files)
    if name not in files:
        raise ConfigError(f"there is no recipe {name!r}. The recipes are {', '.join(files)}.")
    return files[name].read_text(encoding="utf-8")
