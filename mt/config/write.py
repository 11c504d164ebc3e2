"""Writes a ``Config``, or a list of all options, as documented YAML, and compares two configs."""

import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from mt.config.config import Config
from mt.config.explain import SECTIONS, accepted, choices, field_at, kinds_of, unknown_key
from mt.config.located_yaml import Scalar
from mt.config.section import Section, may_change
from mt.config.synonyms import MEANINGS
from mt.errors import ConfigError

_COMMENT_WIDTH = 100
_OPTIONS = {
    f"{section}.{key}": field
    for section, keys in SECTIONS.items()
    for key, field in keys.items()
    if not field.exclude
}

# Words that need no quotes in any version of YAML; in YAML 1.1, no, on and y are booleans.
_PLAIN = re.compile(
    r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z/](?:[\w./:-]*[\w/])?", re.ASCII | re.IGNORECASE
)


def config_to_yaml(config: Config, *, comments: bool = True, keys: Collection[str] | None = None) -> str:
    """The YAML that loads back to ``config``, with ``comments`` above each option, or only these ``keys``."""
    values = {name: text for name, text in all_options(config).items() if keys is None or name in keys}
    return _document(values, _documentation if comments else None)


def options_to_yaml(name: str | None) -> str:
    """All options, as in a config; or those of a section, of a name such as ``kind``, or about some words."""
    chosen = [option for option in _OPTIONS if name in {None, option, *option.split(".")}]
    chosen = chosen or [option for option in _OPTIONS if _is_about(option, str(name))]
    values = {
        option: " # has no default" if _OPTIONS[option].is_required() else _scalar(_OPTIONS[option].default)
        for option in chosen
    }
    if not values:
        section, _, key = str(name).partition(".")
        raise ConfigError(unknown_key((section, key) if section in SECTIONS else (str(name),)))

    def documentation(field: FieldInfo) -> str:
        about = _documentation(field)
        if choices(field) or field.default == {}:
            return about
        return f"{about} {accepted(field).capitalize()}."

    return _document(values, documentation)


def _is_about(option: str, words: str) -> bool:
    """Whether all words are in the name of an option, its names elsewhere, or its description."""
    others = [name for name, meaning in MEANINGS.items() if option in meaning.split()]
    text = " ".join([option, str(_OPTIONS[option].description), *others]).replace("_", " ").lower()
    return all(word in text for word in words.replace("_", " ").lower().split())


def all_options(config: Config) -> dict[str, str]:
    """The value of every option, as YAML, by its full name, such as ``model.d_model``."""
    return {name: _scalar(value) for name, value in _values(config).items()}


def changed_options(config: Config) -> set[str]:
    """The full names of the options that have no default, or another value."""
    return {name for name, value in _values(config).items() if value != _field(name).default}


def _values(config: Config) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {}
    for name in _OPTIONS:
        values |= _leaves(name, attrgetter(name)(config))
    return values


def sources_to_yaml(config: Config) -> str:
    """The beginning of a config that has ``data.sources`` alone."""
    names = {name for name in _values(config) if name.startswith("data.sources.")}
    return config_to_yaml(config, comments=False, keys=names)


def _leaves(name: str, value: Any) -> dict[str, Scalar]:
    """The value of an option, or those of its keys if it has some, by their full names."""
    if isinstance(value, Section):
        value = dict(value)
    if not (isinstance(value, dict) and value):
        return {name: value}
    leaves: dict[str, Scalar] = {}
    for key, inner in value.items():
        if inner is not None:
            leaves |= _leaves(f"{name}.{key}", inner)
    return leaves


def _field(name: str) -> FieldInfo:
    field = field_at((*name.split("."),))
    assert field is not None  # Names are those of values.
    return field


def with_unset_from(old: Config, new: Config) -> Config:
    """``new`` with the values of ``old`` for options that it leaves open and that may not change."""
    kept: dict[str, dict[str, Any]] = {}
    for name, fields in SECTIONS.items():
        section = getattr(new, name)
        kept[name] = {}
        for key, field in fields.items():
            is_unset = key not in section.model_fields_set or _is_open(field, getattr(section, key))
            if is_unset and field.json_schema_extra is not may_change:
                kept[name][key] = getattr(getattr(old, name), key)
    return new.with_options(**kept)


def differences(old: Config, new: Config) -> list[str]:
    """What keeps a run of ``old`` from being resumed with ``new``, such as 'training.seed: 1 -> 2'."""
    lines: list[str] = []
    then = _values(old)
    now = _values(new)
    names = [", ".join(config.data.sources) or "none" for config in (old, new)]
    if names[0] != names[1]:
        lines.append(f"data.sources: {names[0]} -> {names[1]}")
    for name in then | now:
        if names[0] != names[1] and name.startswith("data.sources"):
            continue
        field = _field(name)
        before = then.get(name)
        after = now.get(name)
        is_open = _is_open(field, before) or _is_open(field, after)
        # The text of the corpus is compared when it is loaded, wherever it is now.
        if before != after and not (is_open or field.json_schema_extra is may_change):
            lines.append(f"{name}: {_scalar(before)} -> {_scalar(after)}")
    return lines


def _is_open(field: FieldInfo, value: Scalar) -> bool:
    """Whether a value depends on the machine, so that another takes its place when a run begins."""
    return value in ("auto", "mixed") and str not in kinds_of(field)


def fixed_options(config: Config) -> dict[str, Scalar]:
    """The options of tokenizer, model, schedule and training that cannot change while a run is trained."""
    fixed = {}
    for name, value in _values(config).items():
        is_of_model = name.startswith(("tokenizer.", "model.", "schedule.", "training."))
        # Not a mapping that is empty.
        is_of_model &= isinstance(value, str | int | float | None)
        if is_of_model and _field(name).json_schema_extra is not may_change:
            fixed[name] = value
    return fixed


def _document(values: Mapping[str, str], documentation: Callable[[FieldInfo], str] | None) -> str:
    """A YAML document with these options, and perhaps a comment above each section and option."""
    lines: list[str] = []
    above: list[str] = []
    for name, value in values.items():
        path = name.split(".")
        for depth, word in enumerate(path):
            if above[: depth + 1] == path[: depth + 1]:
                continue
            indent = "  " * depth
            if depth == 0 and lines:
                lines.append("")
            if documentation and depth == 0:
                lines += _comment(str(Config.model_fields[word].annotation.__doc__), indent)
            elif documentation and depth == 1:
                lines += _comment(documentation(SECTIONS[path[0]][word]), indent)
            is_last = depth == len(path) - 1
            lines.append(f"{indent}{word}: {value}" if is_last else f"{indent}{word}:")
        above = path
    return "\n".join(lines) + "\n"


def _documentation(field: FieldInfo) -> str:
    words = choices(field)
    return f"{field.description} One of {', '.join(words)}." if words else str(field.description)


def _comment(text: str, indent: str) -> list[str]:
    prefix = f"{indent}# "
    return textwrap.wrap(text, _COMMENT_WIDTH, initial_indent=prefix, subsequent_indent=prefix)


def _scalar(value: Scalar) -> str:
    """``value`` as YAML, in a form that means the same in YAML 1.1 and 1.2."""
    if not isinstance(value, str):
        return yaml.safe_dump(value).split("\n", 1)[0]
    if _PLAIN.fullmatch(value):
        return value
    return yaml.safe_dump(value, default_style='"', allow_unicode=True, width=float("inf")).rstrip("\n")
