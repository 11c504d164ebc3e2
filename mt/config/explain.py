"""Turns pydantic's errors about a config into sentences: location, key, the value given, what is accepted."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mt.config.config import Config
from mt.config.located_yaml import MAX_SHOWN, KeyPath, Location
from mt.config.section import Section
from mt.config.synonyms import MEANINGS
from mt.display import one_line

SECTIONS: dict[str, dict[str, FieldInfo]] = {
    name: field.annotation.model_fields for name, field in Config.model_fields.items() if field.annotation
}
"""The fields of each section, by its name."""


def field_at(path: KeyPath) -> FieldInfo | None:
    """The field at a key path, such as that of ``data.sources.talks.weight``; None if there is none."""
    kind: Any = Config
    field = None
    for key in path:
        if get_origin(kind) is dict:
            _, kind = get_args(kind)
            if not hasattr(kind, "model_fields"):
                field = FieldInfo.from_annotation(kind)
        elif (field := getattr(kind, "model_fields", {}).get(key)) is None:
            return None
        else:
            is_mapping = get_origin(field.annotation) is dict
            kind = field.annotation if is_mapping else _section_of(field) or field.annotation
    return field


def _section_of(field: FieldInfo) -> type[Section] | None:
    """The section beneath a field: of one that may be null, as ``write_src``, or of a mapping of sections."""
    kinds = get_args(field.annotation)
    sections = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
    return sections[0] if sections else None


_KINDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_BOUNDS = {
    "gt": "above {}",
    "ge": "of at least {}",
    "lt": "below {}",
    "le": "at most {}",
    "min_length": "that is not empty",
}


def explain(error: ValidationError, locations: dict[KeyPath, Location], file: str) -> str:
    """A sentence for each error, on its own line, in the order of the file."""
    order = list(locations)
    lines = set[tuple[int, str]]()
    for details in error.errors(include_url=False):
        path = _blamed(details, locations)
        while path and path not in locations:
            path = path[:-1]
        where, position = (locations[path].where, order.index(path)) if path else (file, -1)
        lines.add((position, f"{where}: {_sentence(details, locations)}"))
    return "\n".join(line for _, line in sorted(lines))


def first_complaint(error: ValidationError) -> str:
    """The first error in a file that only `mt` writes; its value, which may be of any length, is left out."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    where = one_line(".".join(map(str, first["loc"])), MAX_SHOWN)
    return f"{where}: {first['msg']}" if where else first["msg"]


def unknown_key(path: KeyPath) -> str:
    """The sentence for a key that the config does not have, with what was probably meant."""
    option = ".".join(path)
    key = path[-1]
    section = ".".join(path[:-1])
    unknown = f"unknown key '{one_line(option, MAX_SHOWN)}'."
    outer, _, inner = key.partition(".")
    if outer in SECTIONS and inner and not section:
        return f"{unknown} Write '{outer}:' and beneath it, indented, '{one_line(inner, MAX_SHOWN)}:'."
    keys = SECTIONS.get(section, {})
    if len(path) > 2:
        outer_field = field_at(path[:-1])
        inner_section = outer_field and _section_of(outer_field)
        keys = inner_section.model_fields if inner_section else {}
    inside = {field: f"{section}.{field}" for field in keys}
    everywhere = {field: f"{name}.{field}" for name, fields in SECTIONS.items() for field in fields}
    options = {name: name for name in SECTIONS} | everywhere | inside
    meant = MEANINGS.get(key.strip("-").lower().replace("-", "_")) or options.get(closest(key, options) or "")
    if meant is None:
        known = f"keys of {section}" if inside else "sections"
        return f"{unknown} The {known} are {', '.join(inside or SECTIONS)}."
    return f"{unknown} {meant}" if meant.endswith(".") else f"{unknown} Did you mean {meant}?"


def _blamed(details: ErrorDetails, locations: dict[KeyPath, Location]) -> KeyPath:
    """The key path of the value that an error is about; of several, the one written last."""
    path = _path(details)
    if details["type"] != "value_error":
        return path
    named = {tuple(key.split(".")) for key in re.findall(r"\b[a-z]+(?:\.\w[\w-]*)+", details["msg"])}
    return next((written for written in reversed(locations) if written in named), path)


def _path(details: ErrorDetails) -> KeyPath:
    """The key path that an error is about; pydantic adds the kind, where a field accepts several."""
    path = tuple(str(part) for part in details["loc"])
    return path[:-1] if path[-1:] in (("int",), ("literal['auto']",)) else path


def _sentence(details: ErrorDetails, locations: dict[KeyPath, Location]) -> str:
    path = _path(details)
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])
    if details["type"] == "extra_forbidden":
        return unknown_key(path)
    written = locations[path].written if path in locations else ""
    option = ".".join(path)
    field = field_at(path)
    if field is None or details["type"] in ("dict_type", "model_type"):
        what = "section" if len(path) == 1 else "mapping"
        return f"'{option}' must be a {what}, that is, keys indented beneath it, not {written}."
    if details["type"] == "missing":
        return f"{option} is missing, and has no default. {field.description}"
    instead = f"not {written}" if written else "but it is empty"
    return f"{option} must be {accepted(field)}, {instead}.{_hint(field, details['input'], written)}"


def _hint(field: FieldInfo, given: object, written: str) -> str:
    """What the user probably has to change; empty if that is unknown."""
    if str in kinds_of(field) and isinstance(given, bool | int | float):
        return f" Put it in quotes: '{written}'."
    meant = closest(given, choices(field)) if isinstance(given, str) else None
    return f" Did you mean {meant}?" if meant else ""


def accepted(field: FieldInfo) -> str:
    """The values that a field accepts, such as 'a whole number of at least 1 or null'."""
    kinds = kinds_of(field)
    if (section := _section_of(field)) and NoneType in kinds:
        what = f"a mapping with {', '.join(section.model_fields)}"
    elif words := choices(field):
        what = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
    else:
        what = next(_KINDS[kind] for kind in kinds if kind is not NoneType)
    bounds = [
        words.format(getattr(mark, name))
        for mark in field.metadata
        for name, words in _BOUNDS.items()
        if hasattr(mark, name)
    ]
    what += f" {' and '.join(bounds)}" if bounds else ""
    what += ", auto" if Literal["auto"] in kinds else ""
    return f"{what} or null" if NoneType in kinds else what


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The words that a field accepts; empty if it accepts other values."""
    words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return tuple(word if isinstance(word, str) else str(word).lower() for word in words)


def kinds_of(field: FieldInfo) -> tuple[Any, ...]:
    """The types that a field accepts: one, or one and None."""
    return (field.annotation,) if choices(field) else get_args(field.annotation) or (field.annotation,)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The most similar of ``known``, or else one that begins with ``word`` or is its beginning."""
    spellings = {name.lower(): name for name in known if name}
    word = word.lower()
    similar = get_close_matches(word, spellings, n=1)
    if len(word) > 1:
        similar += [name for name in spellings if name.startswith(word) or word.startswith(name)]
    return spellings[similar[0]] if similar else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` with the most similar of ``known``, or nothing if none is similar."""
    nearest = closest(word, known)
    return f" Did you mean {nearest!r}?" if nearest else ""
