"""The race reports what was measured. The trainings themselves take minutes, and other packages."""

from pathlib import Path

import pytest

from scripts.benchmark.race import SIDES, Finish, plot, table

FINISHES = [
    Finish(SIDES[1], 10.0, 10.1, 1_500_000, "float32", 31.25, 1.9),
    Finish(SIDES[0], 10.0, 9.6, 2_000_000, "bf16", 35.5, 2.0),
    Finish(SIDES[0], 5.0, 4.9, 1_000_000, "bf16", 28.0, 2.0),
]


def test_the_table_has_a_row_for_each_finish_in_the_order_of_the_minutes() -> None:
    rows = table(FINISHES).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| 5", "| 10", "| 10"]
    assert "| 10 | Hugging Face Marian | 10.1 | 1,500,000 | float32 | 31.25 |" in rows


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(FINISHES, tmp_path / "race.png", "two cores")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")
