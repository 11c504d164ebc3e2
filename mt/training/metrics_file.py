"""Reads a run's ``metrics.jsonl``, in which each line is a point: the metrics of one kind at one step."""

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mt.files import read_json_lines


class Point(NamedTuple):
    """The metrics of one step."""

    step: int
    kind: str
    """``train`` or ``validation``."""
    figures: dict[str, float]
    """By their names; NaN for one that was not finite."""
    text: str
    """The line in the file."""


def read_points(file: Path) -> list[Point]:
    """All points of a file in their order, none if it does not exist, without one that a crash cut off."""
    points = []
    for values in read_json_lines(file):
        text = json.dumps(values)
        with suppress(ValueError, TypeError, KeyError):
            step, kind = int(values.pop("step")), str(values.pop("kind"))
            # JSON has no NaN.
            figures = {name: math.nan if value is None else float(value) for name, value in values.items()}
            points.append(Point(step, kind, figures, text))
    return points
