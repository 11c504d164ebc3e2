"""Stages: parts of a run in which the sources of its training pairs have other weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mt
from mt.checkpoint.store import CheckpointStore
from mt.config.training import TrainingConfig
from mt.errors import ConfigError
from mt.run_directory import RunDirectory
from tests.fixture_types import AssertSame, MakeConfig
from tests.training.steps import Training, scripted


@pytest.fixture
def stages(tmp_path: Path) -> list[str]:
    """Six steps on both sources, then five on ``loud`` alone."""
    (tmp_path / "loud.tsv").write_text("en\tde\n" + "the dog!\tDER HUND\n" * 50)
    options = {
        "data.sources.loud.path": tmp_path / "loud.tsv",
        "training.stages.first.steps": 6,
        "training.stages.first.weights.loud": 0.5,
        "training.stages.last.steps": 5,
        "training.stages.last.weights.own": 0,
    }
    return [f"{name}={value}" for name, value in options.items()] + ["training.max_steps=null"]


@pytest.mark.parametrize("step", [3, 6, 7, 9])
def test_a_run_that_is_killed_near_a_change_of_stage_ends_like_one_that_is_not(
    train: Training, run: RunDirectory, stages: list[str], assert_same: AssertSame, step: int
) -> None:
    train.crash(*stages, step=step)
    assert train(*stages).finished == "training.max_steps (11) reached"
    unbroken = RunDirectory(run.path.with_name("unbroken"))
    train(*stages, into=unbroken)
    assert_same(run, unbroken)


def test_epochs_count_within_a_stage_and_the_best_is_of_the_last_one(
    train: Training,
    run: RunDirectory,
    stages: list[str],
    read_metrics: Callable[[Path], list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mt.training.session.validate", scripted([1, 2, 9, 3, 8, 4, 5, 6, 7, 2, 1]))
    train(*stages, "validation.every_steps=1", "training.batch_tokens=400")
    points = read_metrics(run.metrics_file)
    stage_of = {point["step"]: point["stage"] for point in points if point["kind"] == "train"}
    assert stage_of == {step: 1 if step <= 6 else 2 for step in range(1, 12)}
    assert CheckpointStore(run.checkpoints_dir).pointer("best") == "step_0000009"
    epochs = [point["epoch"] for point in points if point["kind"] == "train"]
    # In the last stage, a pass is one step.
    assert epochs[5:] == [3, 1, 2, 3, 4, 5]


def test_a_stage_that_was_changed_is_another_config(train: Training, stages: list[str]) -> None:
    train(*stages, step=8)
    with pytest.raises(mt.MtError, match=r"training\.stages\.first\.weights\.loud: 0\.5 -> 0\.25"):
        train(*stages, "training.stages.first.weights.loud=0.25")


def test_the_stage_of_a_step() -> None:
    three = {name: {"steps": steps} for name, steps in (("a", 2), ("b", 3), ("c", 1))}
    training = TrainingConfig.model_validate({"stages": three})
    assert training.max_steps == 6
    numbers = [training.stage_at(step) for step in range(7)]
    assert numbers == [(0, 0), (0, 0), (1, 2), (1, 2), (1, 2), (2, 5), (2, 5)]
    assert TrainingConfig(max_steps=9).stage_at(5) == (0, 0)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("training.max_epochs=3", r"training\.max_epochs: epochs are counted in each stage; leave it out"),
        ("training.max_steps=12", "the stages have 11 steps; leave it out"),
        ("training.stages.last.weights.lout=1", r"weights\.lout: there is no such source, only own, loud"),
        (
            "training.stages.last.weights.own=-1",
            r"own must be a number of at least 0 and at most 1000, not",
        ),
        ("training.stages.last.step=1", r"unknown key .* Did you mean training\.stages\.last\.steps"),
    ],
)
def test_a_wrong_option_is_named(
    make_config: MakeConfig, stages: list[str], option: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(*stages, option)
