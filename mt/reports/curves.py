"""The curves of a run, from its ``metrics.jsonl``."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

from mt.training.metrics_file import Point, parse_points

# Enough for the curves of ten million steps. Only the end of a larger file is read.
_MAX_BYTES = 2**26
_TRAIN, _VALIDATION = b'"train"', b'"validation"'


@dataclass(frozen=True)
class Curves:
    """All points, by step; metrics that were not finite are left out."""

    train: list[Point]
    validation: list[Point]

    def best(self, name: str) -> tuple[float, int] | None:
        """The highest value of a validation metric, and its step; None if there is none."""
        values = [(point[name], -point.step) for point in self.validation if name in point.figures]
        if not values:
            return None
        value, step = max(values)
        return value, -step

    @property
    def newest(self) -> Point | None:
        """The point with the highest step."""
        ends = [points[-1] for points in (self.train, self.validation) if points]
        return max(ends, key=lambda point: point.step, default=None)


def series(points: list[Point], name: str) -> list[tuple[int, float]]:
    """Step and value of one metric, where it is known."""
    return [(point.step, point[name]) for point in points if name in point.figures]


def read_curves(file: Path, *, num_train: int | None = None) -> Curves:
    """Read the points; a missing file has none, and lines that are not points are skipped.

    Args:
        file: The ``metrics.jsonl``.
        num_train: Read only this many of the last points of training, which is faster; None reads all.
    """
    try:
        lines = _last_lines(file)
    except FileNotFoundError:
        return Curves([], [])
    # Points of kind "layers", which stand between them, are not counted.
    train = [line for line in lines if _TRAIN in line]
    validation = [line for line in lines if _VALIDATION in line]
    if num_train is not None:
        train = train[-num_train:]
    return Curves(_by_step(train, "train"), _by_step(validation, "validation"))


def _last_lines(file: Path) -> list[bytes]:
    """The lines of the file, or of its end."""
    with file.open("rb") as opened:
        start = max(0, os.fstat(opened.fileno()).st_size - _MAX_BYTES)
        opened.seek(start)
        lines = (opened.read(_MAX_BYTES) or b"").split(b"\n")
    # The first line of the end of a file may be half a line.
    return [line for line in lines[start > 0 :] if line]


def _by_step(lines: list[bytes], kind: str) -> list[Point]:
    found = {point.step: _finite(point) for point in parse_points(lines) if point.kind == kind}
    return [found[step] for step in sorted(found)]


def _finite(point: Point) -> Point:
    return replace(point, figures={n: value for n, value in point.figures.items() if not math.isnan(value)})
