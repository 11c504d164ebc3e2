"""Config files in an empty folder, and what is said about them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.load import load_config
from mt.errors import ConfigError

Write = Callable[[str], Path]

DATA = "data:\n  path: builtin:primer\n  src: en\n  tgt: de\n"  # Lines 1 to 4,
SMALLEST = DATA + "training:\n  max_steps: 10\n"  # ... 5 and 6; what a test appends begins in line 7.


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_config(path, overrides)
    return str(raised.value)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a ``configs/`` in it, so that messages name short paths."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    return tmp_path


@pytest.fixture
def write_config(in_folder: Path) -> Write:
    """Writes its text to ``configs/my.yaml`` and returns that relative path."""

    def write(text: str) -> Path:
        path = Path("configs/my.yaml")
        path.write_bytes(text.encode("utf-8"))
        return path

    return write
