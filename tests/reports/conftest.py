"""Runs to look at: copies of the golden ones, which nobody has to train."""

import shutil
from pathlib import Path

import pytest

from mt.run_directory import RunDirectory
from tests.fixture_types import GoldenRun

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def golden_run(tmp_path: Path) -> GoldenRun:
    """Copies a golden run, such as ``format_2``, to ``runs/NAME``."""

    def copy(which: str = "format_2", name: str = "golden") -> RunDirectory:
        return RunDirectory(Path(shutil.copytree(GOLDEN / which / "run", tmp_path / "runs" / name)))

    return copy
