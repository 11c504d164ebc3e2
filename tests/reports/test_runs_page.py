"""What docs/training.md shows is what the commands print today, but for the figures."""

from pathlib import Path

import pytest

from mt.errors import RunError
from mt.reports.runs import find_runs


def test_runs_are_found_in_folders_and_by_name_without_repetition(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("not a run")

    def names(*paths: Path) -> list[str]:
        return [run.path.name for run in find_runs(paths)]

    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path / "b", tmp_path) == ["b", "a"]
    (tmp_path / "c").symlink_to("b")
    assert names(tmp_path) == ["a", "b", "c"]
    with pytest.raises(RunError, match="There is no run in"):
        names(tmp_path / "notes")
    with pytest.raises(RunError, match=r"Cannot list .*nowhere: No such file"):
        names(tmp_path / "nowhere")
