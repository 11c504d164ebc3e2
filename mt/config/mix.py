"""The lines of ``data.mix``: more sources to train on, each with its weight."""

import math
import re
from difflib import get_close_matches
from typing import NamedTuple

from mt.config.columns import DELIMITERS, parse_columns

_WORD = re.compile(r"(?P<before>.*\S)\s+(?P<key>\w+)=(?P<value>\S*)")
_KEYS = ("weight", "name", "revision", "src", "tgt", "columns", "delimiter", "num_train_pairs")


class MixedSource(NamedTuple):
    """One line of ``data.mix``.

    Attributes:
        weight: How often an epoch shows each pair of the source, on average.
        fields: Of `DataConfig`, those that the line gives, and ``path``.
    """

    weight: float
    fields: dict[str, str | int]


def parse_mix(mix: str) -> list[MixedSource]:
    """The sources of ``data.mix``, which stand on a line each, or between semicolons.

    Raises:
        ValueError: If a line says something that cannot be understood; the message is for the user.
    """
    return [_parse_line(line.strip()) for line in re.split(r"[\n;]", mix) if line.strip()]


def _parse_line(line: str) -> MixedSource:
    """``path key=value key=value``, where the path may hold blanks."""
    weight, path = 1.0, line
    fields: dict[str, str | int] = {}
    while word := _WORD.fullmatch(path):
        path, key, value = word.groups()
        problem = f"data.mix: in {line!r}, {key}={value}"
        if key not in _KEYS:
            close = get_close_matches(key, _KEYS, n=1)
            hint = f" Did you mean {close[0]}=?" if close else ""
            raise ValueError(f"{problem} is not known; after the path may stand {'=, '.join(_KEYS)}=.{hint}")
        if not value or key in fields:
            what = "stands there twice" if key in fields else "lacks its value, right after the equals sign"
            raise ValueError(f"{problem} {what}.")
        fields[key] = value
    if "weight" in fields:
        weight = _number(str(fields.pop("weight")))
        if not 0 < weight < math.inf:
            raise ValueError(f"data.mix: in {line!r}, the weight must be a number above 0, such as 0.5.")
    if "columns" in fields:
        try:
            parse_columns(str(fields["columns"]))
        except ValueError as error:
            raise ValueError(f"data.mix: in {line!r}, {error}") from None
    if fields.get("delimiter", "auto") not in DELIMITERS:
        raise ValueError(f"data.mix: in {line!r}, the delimiter must be one of {', '.join(DELIMITERS)}.")
    if "num_train_pairs" in fields:
        count = str(fields["num_train_pairs"])
        if not re.fullmatch(r"[1-9][0-9]{0,17}", count, re.ASCII):
            raise ValueError(f"data.mix: in {line!r}, num_train_pairs must be a whole number of at least 1.")
        fields["num_train_pairs"] = int(count)
    return MixedSource(weight, {"path": path, **fields})


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
