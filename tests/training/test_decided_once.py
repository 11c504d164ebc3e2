"""What depends on the machine is decided when a run begins, and stays so wherever it is resumed."""

import time
from typing import Literal

import pytest
import torch

import mt
import mt.training.run
from mt.config.config import Config
from mt.config.load import load_config
from mt.config.training import LEAST_TIMED, ScheduleConfig, TrainingConfig
from mt.device import Precision
from mt.errors import Interrupted
from mt.run_directory import RunDirectory
from mt.training.budget import Pace, length_within
from mt.training.compiling import is_compiled
from mt.training.loss import Objective
from mt.training.resume import resolve_auto
from mt.training.run import run_training
from mt.training.schedule import learning_rate
from tests.fixture_types import AssertSame, MakeConfig
from tests.training.steps import Training, raising


def test_the_precision_is_that_of_the_machine_on_which_the_run_began(
    train: Training,
    run: RunDirectory,
    unbroken: RunDirectory,
    assert_same: AssertSame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mt.device.usable_precisions", lambda _: ["float32"])
    train("training.precision=mixed", "training.max_steps=4")
    assert load_config(run.config_file).training.precision == "float32"
    monkeypatch.setattr("mt.device.usable_precisions", lambda _: ["bf16"])
    train("training.precision=mixed")
    assert_same(run, unbroken)


@pytest.mark.parametrize(
    ("options", "num_steps", "expected"),
    [
        ({}, 9_999, False),
        ({}, 10_000, True),
        ({"max_minutes": 5.0}, float("inf"), False),
        ({"max_minutes": 60.0}, float("inf"), True),
        ({"compile": True}, 10, True),
        ({"compile": False}, 10**6, False),
    ],
)
def test_a_run_is_compiled_if_it_is_long_enough(
    options: dict[str, float], num_steps: float, expected: bool
) -> None:
    training = TrainingConfig.model_validate({"max_steps": 1} | options)
    assert is_compiled(training, num_steps) == expected


@pytest.mark.parametrize(("device", "expected"), [("cpu", False), ("mps", False), ("cuda", "auto")])
def test_only_cuda_leaves_open_whether_to_compile(
    device: str, expected: object, make_config: MakeConfig
) -> None:
    precision = Precision("float32", torch.device(device))
    assert resolve_auto(make_config(), precision).training.compile == expected


def test_whether_a_run_is_compiled_is_stored(
    train: Training, make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Objective] = []
    monkeypatch.setattr(mt.training.run, "compile_objective", compiled.append)
    # As on CUDA, which leaves it open until the number of steps is known.
    monkeypatch.setattr(mt.training.resume, "resolve_auto", lambda config, *_: config)
    config = make_config("training.max_steps=10000", "training.precision=float32")
    run_training(config, run, on_metrics=raising(Interrupted))
    assert load_config(run.config_file).training.compile is True
    # A shorter limit changes nothing any more.
    train("training.max_steps=12", "training.precision=float32")
    assert load_config(run.config_file).training.compile is True
    assert len(compiled) == 2


@pytest.mark.parametrize("options", [[], ["training.compile=true"]])
def test_a_run_that_was_compiled_on_cuda_continues_on_a_cpu_and_stays_one_that_is_compiled(
    train: Training,
    options: list[str],
    make_config: MakeConfig,
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    train("training.max_steps=1", "training.precision=float32")
    text = run.config_file.read_text()
    run.config_file.write_text(text.replace("compile: false", "compile: true"))
    monkeypatch.delattr(torch, "compile")
    config = make_config("training.max_steps=2", *options)
    assert "can continue" in mt.check(config, run).verdict
    assert run_training(config, run).counters.step == 2
    assert "resuming may not be bit-exact, because of training.compile" in caplog.text
    assert load_config(run.config_file).training.compile is True


COSINE = "schedule.kind=cosine", "schedule.warmup_steps=10", "schedule.total_steps=auto"
BY_TIME = *COSINE, "training.max_steps=null", "training.max_minutes=600"


@pytest.mark.parametrize("step", [11, 13])
def test_a_run_that_was_killed_when_it_had_chosen_its_length_ends_like_one_that_was_given_it(
    step: int, train: Training, run: RunDirectory, assert_same: AssertSame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mt.training.session.length_within", lambda *_: 14)
    train.crash(*BY_TIME, step=step)
    assert load_config(run.config_file).schedule.total_steps == 14
    monkeypatch.setattr("mt.training.session.length_within", lambda *_: 99)
    assert train(*BY_TIME).finished == "training.max_steps (14) reached"
    given = RunDirectory(run.path.with_name("given"))
    train(*COSINE, "training.max_steps=14", into=given)
    assert load_config(given.config_file).schedule.total_steps == 14
    assert_same(run, given)


def test_the_length_is_what_is_left_of_the_time(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Most of the time was spent before: importing, say.
    began = time.perf_counter() - 600 * 60 + 60
    seen: list[tuple[float, Pace, int]] = []

    def choose(left: float, config: Config, pace: Pace, step: int) -> int:
        seen.append((left, pace, step))
        return 12

    monkeypatch.setattr("mt.training.session.length_within", choose)
    monkeypatch.setattr("mt.training.session.LATE", -1.0)
    with caplog.at_level("INFO"):
        train(*BY_TIME, began=began)
    [(left, pace, step)] = seen
    assert step == 10
    assert 0 < left + pace.start_seconds < 60
    assert 0 < pace.step_seconds < 60
    assert pace.validation_seconds > 0
    assert pace.checkpoint_seconds > 0
    assert f"in 600 minutes, the run takes 12 steps of {pace.step_seconds:.3g} seconds" in caplog.text
    assert "longer than its time: a step took" in caplog.text


def test_a_resumed_run_times_steps_of_its_own_and_counts_the_time_before(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = train(*BY_TIME, step=7).counters.seconds
    seen: list[tuple[float, int]] = []

    def choose(left: float, config: Config, pace: Pace, step: int) -> int:
        seen.append((left + pace.start_seconds, step))
        return 18

    monkeypatch.setattr("mt.training.session.length_within", choose)
    began = time.perf_counter()
    train(*BY_TIME, began=began)
    [(left, step)] = seen
    assert step == 7 + LEAST_TIMED
    assert 600 * 60 - left > before
    assert 600 * 60 - left < before + time.perf_counter() - began


@pytest.mark.parametrize(("kind", "rate"), [("cosine", 2.0), ("inverse_sqrt", 1.0)])
def test_until_the_length_is_chosen_a_cosine_stays_at_its_peak(
    kind: Literal["cosine", "inverse_sqrt"], rate: float
) -> None:
    schedule = ScheduleConfig(kind=kind, learning_rate=2.0, warmup_steps=10, total_steps="auto")
    assert [learning_rate(step, schedule, d_model=8) for step in (5, 40)] == [1.0, rate]


def test_the_steps_that_fit_into_a_time(make_config: MakeConfig) -> None:
    pace = Pace(50, 5000, 0.5, validation_seconds=3.0, checkpoint_seconds=1.0)
    config = make_config("validation.every_steps=20", "checkpoint.every_epochs=1")
    # To step 50: 20 seconds for 40 steps, validations at 20, 40 and 50, and a checkpoint at 50.
    assert [length_within(seconds, config, pace, 10) for seconds in (29.9, 30.0, 30.5)] == [49, 50, 50]
    # From a step that was validated just now.
    assert length_within(5.0 + 4.0, config, pace, 20) == 30
    assert length_within(-5.0, config, pace, 20) == 21
