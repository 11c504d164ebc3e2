"""A run that was stopped before its first validation has no best checkpoint: the latest is taken instead."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mt.config.config import Config

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(make_config: Callable[..., Config], train_until: Callable[..., object], tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "stopped"
    train_until(make_config(), path, step=3)
    assert not (path / "checkpoints" / "best").exists()
    return path


@pytest.mark.parametrize(
    "command",
    [
        ["translate", "the dog sees milk."],
        ["evaluate", "--scores-only", "--checkpoint", "best"],
        ["score", "s", "t"],
    ],
)
def test_the_latest_is_taken_and_named(call: Call, run: Path, command: list[str]) -> None:
    for name in ("s", "t"):
        Path(name).write_text("Anna\n")
    code, out, err = call(*command, "--run", run)
    assert code == 0, err
    assert out
    assert err.count("no validation has marked a best checkpoint yet: using the latest") == 1
    assert "step_0000003" in err
