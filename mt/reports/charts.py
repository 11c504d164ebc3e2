"""Line charts as SVG that is put into a page: no script, colours from the page's style sheet.

Lines differ in colour, dash pattern and marks, so that they are told apart without colour too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 460, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, WIDTH - 14, 12, HEIGHT - 40
_MAX_POINTS = 400
_NUM_TICKS = 5
# With more points than this, marks would cover the line.
_MAX_MARKS = 40


@dataclass(frozen=True)
class Line:
    """A curve."""

    label: str
    """Empty if it is the only curve of a chart, which the title describes."""
    points: Sequence[tuple[int, float]]
    """Step and value, by step."""


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """About `_NUM_TICKS` round numbers."""
        rough = (self.high - self.low) / _NUM_TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        width = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        return [n * width for n in range(math.ceil(self.low / width), math.floor(self.high / width) + 1)]


def line_chart(title: str, lines: Sequence[Line], *, unit: str = "") -> str:
    """A ``<figure>`` with at most three curves over steps; empty if no line has a point.

    Values in tooltips are followed by ``unit``.
    """
    lines = [Line(line.label, _thinned(line.points)) for line in lines if line.points]
    if not lines:
        return ""
    steps, values = zip(*(point for line in lines for point in line.points), strict=True)
    x = _Axis(0.0, float(max(steps)) or 1.0, _LEFT, _RIGHT)
    low, high = min(values), max(values)
    # A flat line is drawn in the middle, and so is one that differs only by rounding.
    is_flat = high - low < 1e-9 * max(abs(high), 1e-9)
    margin = (0.05 * abs(high) or 1.0) if is_flat else 0.06 * (high - low)
    y = _Axis(low - margin, high + margin, _BOTTOM, _TOP)
    drawn = [
        f'<text class="axis" x="{(_LEFT + _RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>'
    ]
    for value in x.ticks():
        if value == int(value):
            left = f"{x.at(value):.1f}"
            drawn.append(
                f'<line class="grid" x1="{left}" x2="{left}" y1="{_TOP}" y2="{_BOTTOM}"/><text class="tick" '
                f'x="{left}" y="{_BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>'
            )
    for value in y.ticks():
        top = y.at(value)
        drawn.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{top:.1f}" y2="{top:.1f}"/>'
            f'<text class="tick" x="{_LEFT - 6}" y="{top + 4.5:.1f}" text-anchor="end">{_short(value)}</text>'
        )
    legend = ""
    for number, line in enumerate(lines, start=1):
        marks = [(f"{x.at(step):.1f}", f"{y.at(value):.1f}") for step, value in line.points]
        drawn.append(f'<polyline class="line line-{number}" points="{" ".join(map(",".join, marks))}"/>')
        drawn += [
            f'<circle class="mark mark-{number}" cx="{left}" cy="{top}" r="3.5"><title>'
            f"{escape(line.label)} at step {step:,}: {value:.4g}{escape(unit)}</title></circle>"
            for (left, top), (step, value) in zip(marks, line.points, strict=True)
            if len(marks) <= _MAX_MARKS
        ]
        if line.label:
            legend += (
                '<span class="chart-legend"><svg viewBox="0 0 28 10" width="28" height="10" '
                f'aria-hidden="true"><line class="line line-{number}" x1="0" x2="28" y1="5" y2="5"/></svg> '
                f"{escape(line.label)}</span>"
            )
    return (
        f'<figure class="chart"><figcaption><b>{escape(title)}</b> {legend}</figcaption><svg viewBox="0 0 '
        f'{WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg></figure>'
    )


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most `_MAX_POINTS`, each the mean of its neighbours, at the step of the last of them."""
    if len(points) <= _MAX_POINTS:
        return list(points)
    bounds = [len(points) * index // _MAX_POINTS for index in range(_MAX_POINTS + 1)]
    groups = [points[start:end] for start, end in pairwise(bounds)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _short(value: float) -> str:
    """The label of a tick."""
    if value and abs(value) < 0.001:
        digits, exponent = f"{value:.5e}".split("e")
        return f"{float(digits):g}e{int(exponent)}"
    if abs(value) >= 10_000_000:
        return f"{value / 1e6:g}M"
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{round(value, 6):g}"
