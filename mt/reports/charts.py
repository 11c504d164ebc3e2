"""Line charts as SVG that is put into a page: no script, colours from the page's style sheet.

Lines differ in colour, dash pattern and marks, so that they are told apart without colour too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 460, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 40
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


def line_chart(title: str, lines: Sequence[Line], *, unit: str = "") -> str:
    """A ``<figure>`` with a chart over steps; empty if no line has a point.

    Args:
        title: What the chart shows.
        lines: At most three curves.
        unit: The unit after a value in tooltips.
    """
    lines = [Line(line.label, _thinned(line.points)) for line in lines if line.points]
    if not lines:
        return ""
    steps = [step for line in lines for step, _ in line.points]
    x = _Axis(0.0, float(max(steps)) or 1.0, _LEFT, WIDTH - _RIGHT)
    values = [value for line in lines for _, value in line.points]
    low, high = min(values), max(values)
    # A flat line is drawn in the middle, and so is one that differs only by rounding.
    is_flat = high - low < 1e-9 * max(abs(high), 1e-9)
    room = (0.05 * abs(high) or 1.0) if is_flat else 0.06 * (high - low)
    y = _Axis(low - room, high + room, HEIGHT - _BOTTOM, _TOP)
    body = "".join(
        [
            *(_vertical_tick(x, value) for value in _ticks(x.low, x.high) if value == int(value)),
            *(_horizontal_tick(y, value) for value in _ticks(y.low, y.high)),
            f'<text class="axis" x="{(_LEFT + WIDTH - _RIGHT) / 2:.0f}" y="{HEIGHT - 6}" '
            'text-anchor="middle">step</text>',
            *(_curve(line, number, x, y, unit) for number, line in enumerate(lines, start=1)),
        ]
    )
    legend = "".join(_legend(line, number) for number, line in enumerate(lines, start=1) if line.label)
    return (
        f'<figure class="chart"><figcaption><b>{escape(title)}</b> {legend}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{body}</svg></figure>'
    )


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most `_MAX_POINTS`, each the mean of its neighbours, at the step of the last of them."""
    if len(points) <= _MAX_POINTS:
        return list(points)
    bounds = [len(points) * place // _MAX_POINTS for place in range(_MAX_POINTS + 1)]
    groups = [points[start:end] for start, end in pairwise(bounds)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _ticks(low: float, high: float) -> list[float]:
    """About `_NUM_TICKS` round numbers between two bounds."""
    rough = (high - low) / _NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first, last = math.ceil(low / width), math.floor(high / width)
    return [number * width for number in range(first, last + 1)]


def _vertical_tick(x: _Axis, value: float) -> str:
    at = x.place(value)
    return (
        f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
        f'<text class="tick" x="{at:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">'
        f"{_short(value)}</text>"
    )


def _horizontal_tick(y: _Axis, value: float) -> str:
    at = y.place(value)
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{at + 4.5:.1f}" text-anchor="end">{_short(value)}</text>'
    )


def _short(value: float) -> str:
    if value and abs(value) < 0.001:
        digits, exponent = f"{value:.5e}".split("e")
        return f"{float(digits):g}e{int(exponent)}"
    if abs(value) >= 10_000_000:
        return f"{value / 1e6:g}M"
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{round(value, 6):g}"


def _curve(line: Line, number: int, x: _Axis, y: _Axis, unit: str) -> str:
    places = [(x.place(step), y.place(value)) for step, value in line.points]
    path = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
    drawn = f'<polyline class="line line-{number}" points="{path}"/>'
    if len(places) > _MAX_MARKS:
        return drawn
    return drawn + "".join(
        f'<circle class="mark mark-{number}" cx="{left:.1f}" cy="{top:.1f}" r="3.5">'
        f"<title>{escape(line.label)} at step {step:,}: {value:.4g}{escape(unit)}</title></circle>"
        for (left, top), (step, value) in zip(places, line.points, strict=True)
    )


def _legend(line: Line, number: int) -> str:
    return (
        '<span class="chart-legend"><svg viewBox="0 0 28 10" width="28" height="10" aria-hidden="true">'
        f'<line class="line line-{number}" x1="0" x2="28" y1="5" y2="5"/></svg> {escape(line.label)}</span>'
    )
