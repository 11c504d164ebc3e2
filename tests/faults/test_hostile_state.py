"""Altered training states, resealed: each is refused in a sentence, and nothing is lost."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mt.config.load import load_config
from mt.data.prepare import prepare
from mt.errors import MtError
from mt.run_directory import RunDirectory
from mt.training.run import run_training

from .torture.hostile import FORMATS, resume_hostile, sample
from .torture.processes import Driver
from .torture.trial import Arena

COUNT = 60
"""At least one variant of each kind; `scripts/torture` tries hundreds."""


@pytest.fixture
def prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus is always the same, and takes longer than the rest."""
    kept: list[Any] = []

    def once(*arguments: Any, **named: Any) -> Any:
        kept[:] = kept or [prepare(*arguments, **named)]
        return kept[0]

    monkeypatch.setattr("mt.training.run.prepare", once)


def files_of(run: RunDirectory) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in run.path.rglob("*")
        if path.is_file() and path not in (run.log_file, run.path / "lock")
    }


@pytest.mark.parametrize("format_version", FORMATS)
def test_in_process(format_version: int, prepared_once: None, tmp_path: Path) -> None:
    wrong = []
    for number, (name, spoil) in enumerate(sample(format_version, COUNT, seed=1)):
        golden = Path(shutil.copytree(FORMATS[format_version], tmp_path / str(number)))
        run = RunDirectory(golden / "run")
        (checkpoint,) = run.checkpoints_dir.glob("step_*")
        spoil(checkpoint)
        before = files_of(run)
        config = load_config(run.config_file, [f"data.path={golden / 'corpus'}", "training.max_steps=608"])
        try:
            run_training(config, run)
        except MtError as error:
            said = str(error)
            if re.search(r"\d{100}|\x1b", said) or len(said) > 1000:
                wrong.append(f"{name}: says {said[:200]!r}")
            if files_of(run) != before:
                wrong.append(f"{name}: changed the run")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error!s:.200}")
        else:
            wrong.append(f"{name}: was accepted")
        shutil.rmtree(golden)
    assert wrong == []


@pytest.mark.parametrize("format_version", FORMATS)
def test_the_unaltered_run_is_resumed(format_version: int, tmp_path: Path) -> None:
    golden = Path(shutil.copytree(FORMATS[format_version], tmp_path / "golden"))
    run = RunDirectory(golden / "run")
    config = load_config(run.config_file, [f"data.path={golden / 'corpus'}", "training.max_steps=608"])
    assert run_training(config, run).counters.step == 608


@pytest.mark.parametrize("format_version", FORMATS)
def test_as_a_process(format_version: int, arena: Arena, driver: Driver) -> None:
    for variant in sample(format_version, 1, seed=2):
        assert resume_hostile(format_version, variant)(arena, driver).problems == []
