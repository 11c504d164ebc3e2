"""Reads a run's ``metrics.jsonl``, in which each line is a point: the metrics of one kind at one step."""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mt.files import read_bytes

_MAX_BYTES = 2**30
# More than any run can reach.
_MAX_STEP = 10**14
# JSON allows integers that are larger than any float.
_MAX_FIGURE = 1e300
# What a point is, besides its figures.
_NAMES = ("step", "kind")


@dataclass(frozen=True)
class Point:
    """The metrics of one step."""

    step: int
    kind: str
    """``train``, ``layers`` or ``validation``."""
    figures: dict[str, float]
    """By their names; NaN for one that was not finite."""
    text: str
    """The line in the file, without values that are not figures."""

    def __getitem__(self, name: str) -> float:
        """A metric, such as ``loss``."""
        return self.figures[name]


def read_points(file: Path) -> list[Point]:
    """All points of a file in their order, none if it does not exist."""
    if not file.exists():
        return []
    return list(parse_points(read_bytes(file, max_bytes=_MAX_BYTES).split(b"\n")))


def parse_points(lines: Iterable[bytes]) -> Iterator[Point]:
    """The points in these lines, without lines that are incomplete or not points."""
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            text = line.decode()
            point = _point(json.loads(text), text)
            if point is not None:
                yield point


def _point(line: object, text: str) -> Point | None:
    if not isinstance(line, dict) or not _is_step(line.get("step")) or not isinstance(line.get("kind"), str):
        return None
    kept = {name: value for name, value in line.items() if name in _NAMES or _is_figure(value)}
    figures = {
        name: math.nan if value is None else float(value)
        for name, value in kept.items()
        if name not in _NAMES
    }
    return Point(line["step"], line["kind"], figures, text if len(kept) == len(line) else json.dumps(kept))


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value < _MAX_STEP


def _is_figure(value: object) -> bool:
    """Whether a value is a finite number, or None, which training writes for one that was not finite."""
    if type(value) is int or type(value) is float:
        # Also false for NaN, which Python accepts in JSON.
        return -_MAX_FIGURE < value < _MAX_FIGURE
    return value is None
