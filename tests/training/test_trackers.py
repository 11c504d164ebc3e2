"""What experiment trackers get: each step once, in one run of theirs, and never the end of a training."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from mt.errors import ConfigError
from mt.run_directory import RunDirectory
from tests.training.steps import Training


class Fake:
    """A tracker that keeps what it is sent, with the interface of all three, and fails when told to."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.sent: list[tuple[int, str]] = []
        self.parameters: dict[str, Any] = {}
        self.fails_at: int | None = None
        self.num_finished = 0

    def start(self, id: str | None = None, run_id: str | None = None, **options: Any) -> Any:
        name = id or run_id or options.get("name") or f"mlflow-{len(self.started)}"
        if name in self.started:
            assert run_id or options["resume"] == "allow"
        self.started.append(name)
        return SimpleNamespace(id=name, info=SimpleNamespace(run_id=name), log=self.log, finish=self.finish)

    init = start_run = start

    def log(self, metrics: dict[str, float], step: int) -> None:
        if step == self.fails_at:
            raise OSError("the disk of the tracker is full")
        self.sent += [(step, name) for name in metrics]

    log_metrics = log

    def finish(self) -> None:
        self.num_finished += 1
        if self.fails_at is not None:
            raise OSError("that, too")

    end_run = finish

    def set_experiment(self, name: str) -> None:
        assert name == "runs"

    def log_params(self, parameters: dict[str, Any]) -> None:
        assert not self.parameters
        self.parameters = parameters


@pytest.fixture
def name() -> str:
    """The one that most tests are about."""
    return "wandb"


@pytest.fixture
def tracker(name: str, monkeypatch: pytest.MonkeyPatch) -> Fake:
    for variable in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "TRACKIO_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    fake = Fake()
    monkeypatch.setattr("mt.training.trackers.find_spec", lambda name: name)
    monkeypatch.setattr("mt.training.trackers.import_module", lambda imported: {name: fake}[imported])
    return fake


def steps(tracker: Fake, metric: str) -> list[int]:
    return [step for step, name in tracker.sent if name == metric]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_run_that_is_killed_twice_is_one_run_there_without_a_step_twice(
    name: str, tracker: Fake, train: Training, run: RunDirectory
) -> None:
    option = f"training.report_to={name}"
    # Checkpoints are at 3, 4, 6, 8 and 9: steps 5 and 10 to 11 are repeated.
    train.crash(option, step=5)
    train.crash(option, step=11)
    train(option)
    assert steps(tracker, "train/loss") == [*range(1, 13)]
    assert steps(tracker, "validation/bleu") == [4, 8, 12]
    assert {name.partition("/")[0] for _, name in tracker.sent} == {"train", "validation"}
    assert len(tracker.started) == 3
    assert len({*tracker.started}) == 1
    record = json.loads(run.trackers_file.read_text())
    assert record == {"run": "mine", name: {"id": tracker.started[0], "train": 12, "validation": 12}}
    if name == "mlflow":
        assert tracker.parameters["model.d_model"] == 16


def test_what_fails_is_warned_of_once_and_gets_the_rest_when_training_is_resumed(
    name: str, tracker: Fake, train: Training, caplog: pytest.LogCaptureFixture
) -> None:
    option = f"training.report_to={name}"
    tracker.fails_at = 3
    train(option, step=7)
    [warning] = [message for message in caplog.messages if "no more metrics" in message]
    assert (
        warning
        == f"{name} gets no more metrics until the run is resumed: OSError: the disk of the tracker is full"
    )
    assert steps(tracker, "train/loss") == [1, 2]
    assert tracker.num_finished == 1
    tracker.fails_at = None
    assert train(option).finished
    assert steps(tracker, "train/loss") == [1, 2, *range(4, 13)]
    assert steps(tracker, "validation/loss") == [4, 8, 12]


def test_a_tracker_that_is_added_gets_the_curve_so_far_and_one_that_cannot_start_is_left_out(
    name: str, tracker: Fake, train: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    points: list[int] = []
    train(step=5)
    train(f"training.report_to={name}", step=7)
    assert steps(tracker, "train/loss") == [*range(1, 8)]
    monkeypatch.setattr(Fake, "init", property(lambda self: 1 / 0))
    assert train(f"training.report_to={name}", on_metrics=lambda step, _: points.append(step)).finished
    assert points
    assert max(steps(tracker, "train/loss")) == 7


def test_a_copy_of_a_run_and_one_that_starts_over_with_other_options_are_other_runs(
    name: str, tracker: Fake, train: Training, run: RunDirectory
) -> None:
    option = f"training.report_to={name}"
    train.crash(option, step=2)
    train.crash(option, step=2)
    assert steps(tracker, "train/loss") == [1, 2]
    train.crash(option, "model.dropout=0.1", step=2)
    assert steps(tracker, "train/loss") == [1, 2, 1, 2]
    train(option, "model.dropout=0.1", step=3)
    copied = run.path.rename(run.path.with_name("copy"))
    train(option, "model.dropout=0.1", step=4, into=copied)
    assert steps(tracker, "train/loss") == [1, 2, 1, 2, 3, 1, 2, 3, 4]


def test_a_package_that_is_missing_is_named_before_anything_is_written(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.training.trackers.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"wandb is not installed\. Install it with pip install wandb, or"):
        train("training.report_to=[wandb, mlflow]")
    assert not run.path.exists()
    with pytest.raises(ConfigError, match="'wandbee' is not one of wandb, mlflow, trackio"):
        train("training.report_to=wandbee")
