"""Curves are drawn for any values."""

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mt.reports.charts import HEIGHT, WIDTH, line_chart, sparkline

VALUES = st.floats(-1e299, 1e299, allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(
    points=st.dictionaries(st.integers(0, 10**13), VALUES, max_size=30),
    others=st.lists(VALUES, max_size=1000),
)
def test_a_chart_is_well_formed_and_inside_its_frame(points: dict[int, float], others: list[float]) -> None:
    curves = {"a <b> & c": sorted(points.items()), "other": list(enumerate(others))}
    text = line_chart("<title>", curves)
    if not points and not others:
        assert text == ""
        return
    figure = ET.fromstring(text)
    drawn = [f"{circle.attrib['cx']},{circle.attrib['cy']}" for circle in figure.iter("circle")]
    for polyline in figure.iter("polyline"):
        drawn += polyline.attrib["points"].split()
    points_drawn = [tuple(map(float, point.split(","))) for point in drawn]
    assert points_drawn
    assert all(0 <= left <= WIDTH and 0 <= top <= HEIGHT for left, top in points_drawn)


def test_a_greater_value_is_drawn_higher_and_a_later_step_further_right() -> None:
    figure = ET.fromstring(line_chart("Scores", {"BLEU": [(1, 10.0), (5, 30.0), (9, 20.0)]}))
    drawn = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in figure.iter("circle")]
    assert drawn == sorted(drawn)
    first, second, third = (top for _, top in drawn)
    assert second < third < first
    assert third == pytest.approx((first + second) / 2, abs=0.2)
    # Labels are round numbers; the title and the legend name what is drawn, and each point tells its value.
    ticks = [tick.text for tick in figure.iter("text")]
    assert " ".join(map(str, ticks)) == "step 0 2 4 6 8 10 15 20 25 30"
    assert "".join(figure.find("figcaption").itertext()).split() == ["Scores", "BLEU"]  # type: ignore[union-attr]
    assert [title.text for title in figure.iter("title")] == [
        "BLEU at step 1: 10", "BLEU at step 5: 30", "BLEU at step 9: 20",
    ]  # fmt: skip


def test_many_points_have_no_marks_and_an_only_curve_no_legend() -> None:
    for number, num_marks in ((40, 40), (41, 0)):
        chart = line_chart("x", {"": [(step, 5.0) for step in range(number)]})
        assert (chart.count("<circle"), "chart-legend" in chart) == (num_marks, False)


def test_a_sparkline_rises_with_its_values_and_keeps_its_width() -> None:
    def bars(*values: float) -> str:
        return sparkline(list(enumerate(values)))

    assert bars(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0) == "▁▂▃▄▅▆▇█"
    assert (bars(5.0, 5.0), bars(0.0, 1e-310)) == ("▁▁", "▁█")
    line = bars(*(math.sin(number / 50) for number in range(1000)))
    assert len(line) == 40
    assert {"▁", "█"} <= set(line)
