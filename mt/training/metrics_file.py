"""Reads a run's ``metrics.jsonl``, in which each line is a point: the metrics of one kind at one step."""

import contextlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mt.files import read_bytes

MAX_BYTES = 2**30


@dataclass(frozen=True)
class Point:
    """The metrics of one step."""

    step: int
    kind: str
    """``train``, ``layers`` or ``validation``."""
    figures: dict[str, float]
    """By their names; NaN for one that was not finite."""
    text: str
    """The line in the file."""

    def __getitem__(self, name: str) -> float:
        """A metric, such as ``loss``."""
        return self.figures[name]


def read_points(file: Path) -> list[Point]:
    """All points of a file in their order, none if it does not exist."""
    return list(parse_points(read_bytes(file, max_bytes=MAX_BYTES).split(b"\n"))) if file.exists() else []


def parse_points(lines: Iterable[bytes]) -> Iterator[Point]:
    """The points in these lines, without one that a crash cut off."""
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            text = line.decode()
            values = json.loads(text)
            step, kind = int(values.pop("step")), str(values.pop("kind"))
            # JSON has no NaN.
            figures = {name: math.nan if value is None else float(value) for name, value in values.items()}
            yield Point(step, kind, figures, text)
