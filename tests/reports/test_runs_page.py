"""Where `mt runs` looks for runs."""

from pathlib import Path

import pytest

from mt.errors import RunError
from mt.reports.runs import find_runs


def test_runs_are_found_in_folders_and_by_name_without_repetition(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / "README.md").write_text("not a run")

    def names(*paths: Path) -> list[str]:
        return [run.path.name for run in find_runs(paths)]

    assert names(tmp_path) == ["a", "b"]
    assert names(tmp_path / "b", tmp_path) == ["b", "a"]
    (tmp_path / "c").symlink_to("b")
    assert names(tmp_path) == ["a", "b", "c"]
    for nothing in ("notes", "nowhere"):
        with pytest.raises(RunError, match=f"There is no run in .*{nothing}"):
            names(tmp_path / nothing)
