"""The base of all sections of the config, and what a field accepts in words."""

from collections.abc import Iterable
from difflib import get_close_matches
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Section(BaseModel):
    """One section, frozen; the string below each field is its documentation everywhere."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def may_change(schema: dict[str, Any]) -> None:
    """Marks a field that does not change the mathematics of a run, as its ``json_schema_extra``."""
    schema["description"] += " May change when a run is resumed."


_KINDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_BOUNDS = {
    "gt": "above {}",
    "ge": "of at least {}",
    "lt": "below {}",
    "le": "at most {}",
    "min_length": "that is not empty",
}


def accepted(field: FieldInfo) -> str:
    """The values that a field accepts, such as 'a whole number of at least 1 or null'."""
    kinds = kinds_of(field)
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
    what += f" {' and '.join(bounds)}" if bounds else ""
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
