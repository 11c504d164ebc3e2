from collections.abc import Callable
from pathlib import Path

import pytest

WriteConfig = Callable[[str], Path]


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a ``configs/`` in it, so that messages name short paths."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    return tmp_path


@pytest.fixture
def write_config(in_folder: Path) -> WriteConfig:
    """Writes its text to ``configs/my.yaml`` and returns that relative path."""

    def write(text: str) -> Path:
        path = Path("configs/my.yaml")
        path.write_bytes(text.encode("utf-8"))
        return path

    return write
