"""The race reports what was measured. The trainings themselves take minutes, and other packages."""

from pathlib import Path

import pytest

from scripts.benchmark.race import MARIAN, MT, MT_WITHOUT_AMX, Finish, plot, table

FINISHES = [
    Finish(MARIAN, 10.0, 10.1, 1_500_000, "float32", 31.25, 1.9, 0.0),
    Finish(MT, 10.0, 9.6, 2_000_000, "bf16", 35.5, 2.0, 0.012),
    Finish(MT_WITHOUT_AMX, 10.0, 9.7, 1_200_000, "float32", 30.5, 2.0, 0.0),
    Finish(MT, 5.0, 4.9, 1_000_000, "bf16", 28.0, 2.0, 0.0),
]


def test_the_table_has_a_row_for_each_finish_in_the_order_of_the_minutes() -> None:
    rows = table(FINISHES).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| 5", "| 10", "| 10", "| 10"]
    assert "| 10 | mt | 9.6 | 2,000,000 | bf16 | 35.50 | 1.2% |" in rows


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(FINISHES, tmp_path / "race.png", "two cores")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")
