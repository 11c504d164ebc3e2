"""Runs by the names that `mt runs` prints, and which run is meant where none is named."""

import os
import shutil
from pathlib import Path

import pytest

from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse


@pytest.fixture
def runs(trained: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ``runs`` with runs ``tiny`` and ``lr-0.01``."""
    monkeypatch.chdir(trained.path.parent.parent)
    shutil.copytree(trained.path, trained.path.with_name("lr-0.01"))
    return Path("runs")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    "command",
    [
        "translate --run lr-0.01 Anna",
        "translate --run tiny --ensemble lr-0.01 Anna",
        "show lr-0.01",
        "runs lr-0.01 tiny",
        "attention --run lr-0.01 --format pharaoh Anna",
        "average --run lr-0.01 --last 2",
        "compare tiny lr-0.01 lr-0.01/checkpoints/step_0000100 --show 0",
        "init --init-from lr-0.01@latest --minutes 1 --output more.yaml",
    ],
)
def test_a_name_stands_for_the_run_of_that_name(command: str, succeed: Call) -> None:
    succeed(*command.split())


@pytest.mark.parametrize(
    "command",
    [
        "translate --run lr-001 Anna",
        "translate --run tiny --ensemble lr-001 Anna",
        "score --run tiny --ensemble lr-001",
        "runs lr-001",
        "compare tiny lr-001",
        "init --init-from lr-001",
    ],
)
@pytest.mark.usefixtures("runs")
def test_a_misspelt_name_gets_its_neighbours(command: str, refuse: Refuse) -> None:
    assert refuse(*command.split()).endswith("Runs near it: runs/lr-0.01, runs/tiny.")


def test_a_path_comes_before_a_name(runs: Path, call: Call) -> None:
    shutil.move(runs / "lr-0.01", "tiny")
    (Path("tiny") / "config.yaml").unlink()
    assert call("translate", "--run", "tiny", "Anna")[0] == 2


def test_the_newest_run_is_that_with_a_checkpoint_but_show_describes_one_in_its_first_minutes(
    runs: Path, call: Call
) -> None:
    begun = runs / "begun"
    begun.mkdir()
    shutil.copy(runs / "tiny" / "config.yaml", begun)
    os.utime(begun / "config.yaml", (2e9, 2e9))
    assert call("show")[1].startswith("runs/begun\n")
    # Those of the same second.
    assert call("translate", "Anna")[2] in ("run: runs/tiny\n", "run: runs/lr-0.01\n")


def test_a_renamed_config_says_which_run_it_does_not_continue(
    runs: Path, call: Call, tiny_corpus: Path
) -> None:
    shutil.copytree(tiny_corpus, "elsewhere")
    shutil.rmtree(runs / "lr-0.01")
    # As its user wrote it, before it was decided what `auto` is.
    written = (runs / "tiny" / "config.yaml").read_text().replace("precision: float32", "precision: auto")
    Path("renamed.yaml").write_text(written.replace("compile: false", "compile: auto"))
    for more, is_said in (
        ("training.log_every_steps=10", True),
        ("training.seed=7", False),
        ("data.path=elsewhere", False),
    ):
        code, _, err = call(
            "train", "--config", "renamed.yaml", "--set", "training.max_steps=2", "--set", more
        )
        assert code == 0, err
        assert ("--run runs/tiny" in err) == is_said
        shutil.rmtree(runs / "renamed")
