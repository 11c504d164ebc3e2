"""A run whose checkpoints are gone is refused; one that never had any begins again."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mt.errors import RunError
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import MakeConfig, TrainUntil


def contents(run: RunDirectory) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def remove_steps(run: RunDirectory) -> None:
    for folder in run.checkpoints_dir.glob("step_*"):
        shutil.rmtree(folder)


def remove_steps_and_latest(run: RunDirectory) -> None:
    remove_steps(run)
    (run.checkpoints_dir / "latest").unlink()


def remove_checkpoints(run: RunDirectory) -> None:
    shutil.rmtree(run.checkpoints_dir)


@pytest.mark.parametrize(
    ("remove", "told_by"),
    [
        (remove_steps, "checkpoints/latest and checkpoints/best and metrics.jsonl"),
        (remove_steps_and_latest, "checkpoints/best and metrics.jsonl"),
        (remove_checkpoints, "metrics.jsonl"),
    ],
)
def test_where_the_checkpoints_are_gone_nothing_begins_afresh(
    remove: Callable[[RunDirectory], None], told_by: str, make_config: MakeConfig, run: RunDirectory
) -> None:
    run_training(make_config("training.max_steps=8"), run)
    remove(run)
    before = contents(run)
    with pytest.raises(RunError, match=rf"lost its checkpoints: {told_by} show") as refusal:
        run_training(make_config(), run)
    assert "--restart" in str(refusal.value)
    assert contents(run) == before
    # Without its config it is no run that could be moved aside.
    run.config_file.unlink()
    with pytest.raises(RunError) as refusal:
        run_training(make_config(), run, restart=True)
    assert "--run PATH" in str(refusal.value)


def test_metrics_of_steps_after_one_that_must_have_been_saved_show_that_there_was_a_checkpoint(
    make_config: MakeConfig, train_until: TrainUntil, run: RunDirectory
) -> None:
    """The first validation is at step 4."""
    config = make_config("checkpoint.every_steps=100")
    train_until(config, run.path, step=9, crash=True)
    assert (run.checkpoints_dir / "latest").exists()
    remove_checkpoints(run)
    before = contents(run)
    with pytest.raises(RunError, match=r"lost its checkpoints: metrics\.jsonl show"):
        run_training(config, run)
    assert contents(run) == before


def test_a_run_that_has_lost_its_config_is_refused(make_config: MakeConfig, run: RunDirectory) -> None:
    run_training(make_config("training.max_steps=3"), run)
    run.config_file.unlink()
    before = contents(run)
    for restart in (False, True):
        with pytest.raises(
            RunError, match=r"mine has checkpoints but has lost its config\.yaml\. Restore it"
        ):
            run_training(make_config(), run, restart=restart)
    assert contents(run) == before


@pytest.mark.parametrize(
    "options",
    [("checkpoint.every_steps=9", "validation.every_steps=9"), ("validation.every_steps=100",)],
    ids=["after three quarters", "within the first save"],
)
def test_killed_before_the_first_save_it_begins_again(
    options: tuple[str, ...], make_config: MakeConfig, train_until: TrainUntil, run: RunDirectory
) -> None:
    last_lost = 9 if len(options) == 2 else 3
    train_until(make_config(*options), run.path, step=last_lost, crash=True)
    assert f'"step": {last_lost},' in run.metrics_file.read_text()
    assert not run.checkpoints_dir.exists()
    # Also with another interval, and killed again while it loads.
    again = make_config("checkpoint.every_steps=1", *options[1:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mt.training.run.prepare", crash)
        with pytest.raises(CrashError):
            run_training(again, run)
    assert run_training(again, run).counters.step == 12


class CrashError(Exception):
    """Stands for a process that is killed."""


def crash(*_: Any, **__: Any) -> None:
    raise CrashError
