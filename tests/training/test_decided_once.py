"""What depends on the machine is decided when a run begins, and stays so wherever it is resumed."""

import pytest
import torch

import mt
import mt.training.run
from mt.config.load import load_config
from mt.config.training import TrainingConfig
from mt.device import Precision
from mt.errors import Interrupted
from mt.run_directory import RunDirectory
from mt.training.compiling import is_compiled
from mt.training.loss import Objective
from mt.training.resume import resolve_auto
from mt.training.run import run_training
from tests.fixture_types import AssertSame, MakeConfig
from tests.training.steps import Training


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

    def stop(step: int, metrics: object) -> None:
        raise Interrupted

    run_training(config, run, on_metrics=stop)
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
