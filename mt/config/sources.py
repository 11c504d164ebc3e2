"""The values of ``data.columns``, ``data.delimiter`` and ``data.mix``, parsed."""

import math
import re
from difflib import get_close_matches
from typing import Literal, NamedTuple, get_args

Delimiter = Literal["auto", "tab", "comma", "semicolon", "pipe"]
DELIMITERS: tuple[Delimiter, ...] = get_args(Delimiter)

_LARGEST_WEIGHT = 1000
_WORD = re.compile(r"(?P<before>.*\S)\s+(?P<key>\w+)=(?P<value>\S*)")
_KEYS = ("weight", "name", "revision", "src", "tgt", "columns", "delimiter", "num_train_pairs")


def parse_columns(columns: str) -> tuple[str, str]:
    """The source's and the target's column: two names, or two numbers, counted from 1."""
    parts = [part.strip() for part in columns.split(",")]
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise ValueError(
            f"data.columns must be two columns with a comma between them, the source's first, such as "
            f"english,german (or 1,2 where the file has no header), not {columns!r}."
        )
    if are_positions(*parts) and not all(map(int, parts)):
        raise ValueError(f"data.columns ({columns}): columns are counted from 1.")
    return parts[0], parts[1]


def are_positions(*columns: str) -> bool:
    """Whether columns are given by their numbers, as those of a file without a header are."""
    return all(re.fullmatch("[0-9]{1,6}", column) for column in columns)


class MixedSource(NamedTuple):
    """One line of ``data.mix``.

    Attributes:
        weight: How often an epoch shows each pair of the source, on average.
        fields: The fields of `DataConfig` that the line gives, including ``path``.
    """

    weight: float
    fields: dict[str, str | int]


def parse_mix(mix: str) -> list[MixedSource]:
    """The sources of ``data.mix``, which are on separate lines or separated by semicolons."""
    return [_parse_line(line.strip()) for line in re.split(r"[\n;]", mix) if line.strip()]


def _parse_line(line: str) -> MixedSource:
    """``path key=value key=value``, where the path may contain spaces."""
    weight, path = 1.0, line
    fields: dict[str, str | int] = {}
    while word := _WORD.fullmatch(path):
        path, key, value = word.groups()
        problem = f"data.mix: in {line!r}, {key}={value}"
        if key not in _KEYS:
            close = get_close_matches(key, _KEYS, n=1)
            hint = f" Did you mean {close[0]}=?" if close else ""
            raise ValueError(f"{problem} is unknown; the path can be followed by {'=, '.join(_KEYS)}=.{hint}")
        if not value or key in fields:
            what = "is given twice" if key in fields else "needs a value right after the equals sign"
            raise ValueError(f"{problem} {what}.")
        fields[key] = value
    if "weight" in fields:
        weight = _number(str(fields.pop("weight")))
        if not 0 < weight <= _LARGEST_WEIGHT:
            raise ValueError(
                f"data.mix: in {line!r}, the weight must be a number above 0, such as 0.5, and at most "
                f"{_LARGEST_WEIGHT:,}."
            )
    if "columns" in fields:
        try:
            parse_columns(str(fields["columns"]))
        except ValueError as error:
            # Without the name of an option that is not at fault: it would be blamed.
            raise ValueError(f"data.mix: in {line!r}, {str(error).removeprefix('data.')}") from None
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
