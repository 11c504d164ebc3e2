"""Turns pydantic's errors about a config into sentences: place, key, the value given, the values accepted.

An error about a file that only `mt` writes is told in fewer words.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from operator import ge, gt, le, lt
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mt.config.config import Config
from mt.config.located_yaml import MAX_DIGITS, KeyPath, Place, one_short_line, plain_scalar
from mt.config.removed import why_removed
from mt.config.synonyms import meaning_of, place_of
from mt.errors import ConfigError

SECTIONS: dict[str, dict[str, FieldInfo]] = {
    name: field.annotation.model_fields for name, field in Config.model_fields.items() if field.annotation
}
"""The fields of each section, by its name."""

_MAX_SENTENCES = 20
_KINDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_BOUNDS = {
    "gt": "above {}",
    "ge": "of at least {}",
    "lt": "below {}",
    "le": "at most {}",
    "min_length": "that is not empty",
}
_YES_NO = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def explain(error: ValidationError, places: dict[KeyPath, Place], file: str) -> ConfigError:
    """An error with a sentence for each error in ``error``, one per line, in the order of the file.

    Args:
        error: What validating a ``Config`` raised.
        places: Where each value is written, in the order of the file.
        file: What to name for a value that is missing.
    """
    order = {path: index for index, path in enumerate(places)}
    found: list[tuple[int, str]] = []
    for details in error.errors(include_url=False)[:_MAX_SENTENCES]:
        path = _blamed(details, places)
        while path and path not in places:
            path = path[:-1]
        where, position = (places[path].where, order[path]) if path else (file, -1)
        found.append((position, f"{where}: {_sentence(details, places)}"))
    lines = [sentence for _, sentence in sorted(found, key=lambda pair: pair[0])]
    if error.error_count() > _MAX_SENTENCES:
        lines.append(f"... and {error.error_count() - _MAX_SENTENCES} more.")
    return ConfigError("\n".join(lines))


def first_complaint(error: ValidationError) -> str:
    """The first error, without the value itself, which may be of any length."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    where = one_short_line(".".join(map(str, first["loc"])))
    return f"{where}: {first['msg']}" if where else first["msg"]


def accepted(field: FieldInfo) -> str:
    """The values that a field accepts, such as 'a whole number of at least 1 or null'."""
    kinds = _kinds(field)
    if words := choices(field):
        what = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
    else:
        what = next(_KINDS[kind] for kind in kinds if kind is not NoneType)
    bounds = [
        words.format(getattr(mark, name))
        for mark in field.metadata
        for name, words in _BOUNDS.items()
        if hasattr(mark, name)
    ]
    if bounds:
        what += " " + " and ".join(bounds)
    return f"{what} or null" if NoneType in kinds else what


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The words that a field accepts; empty if it accepts other values."""
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def unknown_key(path: KeyPath) -> str:
    """The sentence for a key that the config does not have: why it has gone, or what was probably meant."""
    if removed := why_removed(path):
        return removed
    *parents, key = path
    known = f"unknown key '{one_short_line('.'.join(path))}'."
    homes = [name for name, fields in SECTIONS.items() if key in fields]
    if homes:
        return f"{known} It belongs to " + " or to ".join(f"{name}: {name}.{key}" for name in homes) + "."
    if not parents and (nested := key.split("."))[0] in SECTIONS and len(nested) == 2:
        return f"{known} Write '{nested[0]}:' and beneath it, indented, '{one_short_line(nested[1])}:'."
    if place := place_of(key):
        return f"{known} {place}"
    if meaning := meaning_of(key):
        return f"{known} Did you mean {_quoted(meaning, *parents)}?"
    if parents and (close := _closest(key, SECTIONS[parents[0]])):
        return f"{known} Did you mean '{close}'?"
    everywhere = {field: f"{name}.{field}" for name, fields in SECTIONS.items() for field in fields}
    everywhere |= {name: name for name in SECTIONS if not parents}
    if close := _closest(key, everywhere):
        return f"{known} Did you mean '{everywhere[close]}'?"
    if parents:
        return f"{known} The keys of {parents[0]} are {', '.join(SECTIONS[parents[0]])}."
    return f"{known} The sections are {', '.join(SECTIONS)}."


def _quoted(options: str, section: str = "") -> str:
    """Options as 'section.key', or as 'key' if they belong to ``section``."""
    return " and ".join(f"'{option.removeprefix(f'{section}.')}'" for option in options.split(" and "))


def _blamed(details: ErrorDetails, places: dict[KeyPath, Place]) -> KeyPath:
    """The key path of the value that an error is about; of several, the one written last."""
    path = tuple(str(part) for part in details["loc"])
    if details["type"] != "value_error":
        return path
    named = {tuple(key.split(".")) for key in re.findall(r"\b[a-z]+\.[a-z]\w*", details["msg"])}
    return next((place for place in reversed(places) if place in named), path)


def _sentence(details: ErrorDetails, places: dict[KeyPath, Place]) -> str:
    path = tuple(str(part) for part in details["loc"])
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])
    if details["type"] == "extra_forbidden":
        return unknown_key(path)
    written = places[path].written if path in places else ""
    if len(path) == 1:
        return f"'{path[0]}' must be a section, that is, keys indented beneath it, not {written}."
    section, key = path
    field = SECTIONS[section][key]
    if details["type"] == "missing":
        return f"{section}.{key} is missing, and has no default. {field.description}"
    given = details["input"]
    instead = f"not {written}" if written else "but it is empty"
    return f"{section}.{key} must be {accepted(field)}, {instead}.{_hint(field, given, written)}"


def _hint(field: FieldInfo, given: object, written: str) -> str:
    """What the user probably has to change, after a space; empty if that is unknown."""
    kinds = _kinds(field)
    if takes_text(field):
        return f" Put it in quotes: '{written}'." if isinstance(given, bool | int | float) else ""
    if int in kinds and isinstance(given, float) and given.is_integer() and abs(given) < 10**MAX_DIGITS:
        return f" Write {int(given)}." if _is_within_bounds(int(given), field) else ""
    if not isinstance(given, str):
        return ""
    if words := choices(field):
        close = _closest(given, words)
    elif bool in kinds:
        close = _YES_NO.get(given.lower())
    else:
        if isinstance(plain_scalar(given), int | float):
            return " Remove the quotes."
        too_long = sum(character.isdigit() for character in given) > MAX_DIGITS
        return f" A number has at most {MAX_DIGITS} digits." if too_long else ""
    return f" Did you mean {close}?" if close else ""


def _is_within_bounds(number: int, field: FieldInfo) -> bool:
    return all(
        holds(number, getattr(mark, name))
        for mark in field.metadata
        for name, holds in (("gt", gt), ("ge", ge), ("lt", lt), ("le", le))
        if hasattr(mark, name)
    )


def takes_text(field: FieldInfo) -> bool:
    """Whether a field accepts any text."""
    return str in _kinds(field)


def _kinds(field: FieldInfo) -> tuple[Any, ...]:
    """The types that a field accepts: one, or one and None."""
    return (field.annotation,) if choices(field) else get_args(field.annotation) or (field.annotation,)


def _closest(word: str, known: Iterable[str]) -> str | None:
    spellings = {name.lower(): name for name in known}
    return next((spellings[close] for close in get_close_matches(word.lower(), spellings, n=1)), None)
