"""The values of ``data.columns``, ``data.delimiter`` and ``data.mix``, parsed."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError

Delimiter = Literal["auto", "tab", "comma", "semicolon", "pipe"]

_Text = Annotated[str, Field(min_length=1)]
_LAST_WORD = re.compile(r"(?P<before>.*\S)\s+(?P<key>\w+)=(?P<value>\S*)")


def parse_columns(columns: str) -> tuple[str, str]:
    """The source's and the target's column: two names, or two numbers, counted from 1."""
    parts = [part.strip() for part in columns.split(",")]
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        examples = "english,german, or 1,2 without a header"
        raise ValueError(
            f"data.columns must be two columns, the source's first ({examples}), not {columns!r}."
        )
    if are_positions(*parts) and not all(map(int, parts)):
        raise ValueError(f"data.columns ({columns}): columns are counted from 1.")
    return parts[0], parts[1]


def are_positions(*columns: str) -> bool:
    """Whether columns are given by their numbers, as those of a file without a header are."""
    return all(re.fullmatch("[0-9]{1,6}", column) for column in columns)


class _Options(BaseModel, extra="forbid"):
    """What may follow the path in a line of ``data.mix``."""

    weight: float = Field(default=1.0, gt=0, le=1000)
    name: _Text = ""
    revision: _Text = ""
    src: _Text = ""
    tgt: _Text = ""
    columns: Annotated[_Text, AfterValidator(lambda columns: parse_columns(columns) and columns)] = ""
    delimiter: Delimiter = "auto"
    num_train_pairs: int = Field(default=1, ge=1, lt=10**18)


MixedSource = tuple[float, dict[str, str | int]]
"""How often an epoch shows each pair, on average; and the fields of `DataConfig` that are given."""


def parse_mix(mix: str) -> list[MixedSource]:
    """The sources of ``data.mix``, which are on separate lines or separated by semicolons."""
    return [_parse_line(line.strip()) for line in re.split(r"[\n;]", mix) if line.strip()]


def _parse_line(line: str) -> MixedSource:
    """``path key=value key=value``, where the path may contain spaces."""
    path = line
    given: dict[str, str] = {}
    while word := _LAST_WORD.fullmatch(path):
        path, key, value = word.groups()
        given[key] = value
    try:
        options = _Options.model_validate(given)
    except ValidationError as error:
        key, keys = str(error.errors()[0]["loc"][0]), "=, ".join(_Options.model_fields)
        raise ValueError(
            f"data.mix: in {line!r}, {key}={given[key]} cannot be used; the path can be followed by {keys}=."
        ) from error
    return options.weight, {"path": path, **options.model_dump(exclude={"weight"}, exclude_unset=True)}
