"""Curves: line charts as SVG for a page, without a script, and bars for a terminal."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import chain, pairwise

from mt.reports.facts import short_count

WIDTH, HEIGHT = 460, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, WIDTH - 14, 12, HEIGHT - 40
_MAX_POINTS = 400
_NUM_TICKS = 5
# With more points than this, marks would cover the line.
_MAX_MARKS = 40
_BARS = "▁▂▃▄▅▆▇█"

Points = Sequence[tuple[int, float]]


def sparkline(points: Points, width: int = 40) -> str:
    """At most ``width`` bars from the lowest to the highest value, each the mean of its share of points."""
    means = [value for _, value in _thinned(points, width)]
    lowest = min(means)
    span = max(means) - lowest or 1.0
    return "".join(_BARS[round((mean - lowest) / span * (len(_BARS) - 1))] for mean in means)


def line_chart(title: str, curves: Mapping[str, Points]) -> str:
    """A ``<figure>`` with at most three curves over steps, by their labels; empty if no curve has a point.

    They are told apart without colour too. The label of an only curve, which the title describes, is empty.
    """
    lines = {label: _thinned(points, _MAX_POINTS) for label, points in curves.items() if points}
    if not lines:
        return ""
    steps, values = zip(*chain(*lines.values()), strict=True)
    last_step = float(max(steps)) or 1.0
    low, high = min(values), max(values)
    # A flat line is drawn in the middle, and so is one that differs only by rounding.
    is_flat = high - low < 1e-9 * max(abs(high), 1e-9)
    margin = (0.05 * abs(high) or 1.0) if is_flat else 0.06 * (high - low)
    low, high = low - margin, high + margin

    def x(step: float) -> str:
        return f"{_LEFT + step / last_step * (_RIGHT - _LEFT):.1f}"

    def y(value: float, offset: float = 0.0) -> str:
        return f"{_BOTTOM + (value - low) / (high - low) * (_TOP - _BOTTOM) + offset:.1f}"

    drawn = [
        f'<text class="axis" x="{(_LEFT + _RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">step</text>'
    ]
    for step in _ticks(0.0, last_step):
        if step == int(step):
            at = x(step)
            drawn.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{_TOP}" y2="{_BOTTOM}"/>')
            text = f'<text class="tick" x="{at}" y="{_BOTTOM + 16}" text-anchor="middle">'
            drawn.append(f"{text}{short_count(step)}</text>")
    for value in _ticks(low, high):
        at = y(value)
        drawn.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{at}" y2="{at}"/>')
        text = f'<text class="tick" x="{_LEFT - 6}" y="{y(value, 4.5)}" text-anchor="end">'
        drawn.append(f"{text}{short_count(value)}</text>")
    legend = ""
    for number, (label, points) in enumerate(lines.items(), start=1):
        path = " ".join(f"{x(step)},{y(value)}" for step, value in points)
        drawn.append(f'<polyline class="line line-{number}" points="{path}"/>')
        for step, value in points if len(points) <= _MAX_MARKS else ():
            drawn.append(
                f'<circle class="mark mark-{number}" cx="{x(step)}" cy="{y(value)}" r="3.5"><title>'
                f"{escape(label)} at step {step:,}: {value:.4g}</title></circle>"
            )
        if label:
            legend += (
                '<span class="chart-legend"><svg viewBox="0 0 28 10" width="28" height="10" '
                f'aria-hidden="true"><line class="line line-{number}" x1="0" x2="28" y1="5" y2="5"/></svg> '
                f"{escape(label)}</span>"
            )
    return (
        f'<figure class="chart"><figcaption><b>{escape(title)}</b> {legend}</figcaption><svg viewBox="0 0 '
        f'{WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg></figure>'
    )


def _thinned(points: Points, most: int) -> Points:
    """At most so many points, each the mean of its neighbours, at the step of the last of them."""
    count = min(most, len(points))
    bounds = [len(points) * index // max(1, count) for index in range(count + 1)]
    thinned = []
    for start, end in pairwise(bounds):
        steps, values = zip(*points[start:end], strict=True)
        thinned.append((steps[-1], sum(values) / len(values)))
    return thinned


def _ticks(low: float, high: float) -> list[float]:
    """About `_NUM_TICKS` round numbers."""
    rough = (high - low) / _NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [n * width for n in range(math.ceil(low / width), math.floor(high / width) + 1)]
