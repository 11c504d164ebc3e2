"""What several processes decide together, with the others' answers made up."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from mt import distributed
from mt.config.config import Config
from mt.data.batches.batch import Batch, collate
from mt.errors import Interrupted, TrainingError
from mt.run_directory import RunDirectory
from mt.training.run import run_training
from mt.training.session import Session
from mt.training.step import StepResult

MakeConfig = Callable[..., Config]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


def test_the_time_that_limits_a_run_is_the_first_process_s(
    make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "agree", lambda value: 7200.0 if isinstance(value, float) else value)
    outcome = run_training(make_config("training.max_minutes=100"), run)
    assert outcome.finished == "training.max_minutes (100) reached"
    assert outcome.counters.step == 1


def test_that_another_process_was_asked_to_stop_is_heard_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(distributed, "_board", HashStore())
    monkeypatch.setattr(distributed, "_read_at", 0.0)
    monkeypatch.setattr("time.monotonic", lambda: now)
    assert not distributed.has_heard(stop=False)
    # The other one.
    assert distributed.has_heard(stop=True)
    now += 0.9
    assert not distributed.has_heard(stop=False)
    now += 0.2
    assert distributed.has_heard(stop=False)


@pytest.mark.parametrize("error", [Interrupted(), TrainingError("no memory")])
def test_what_ends_the_work_of_one_ends_that_of_all(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(distributed, "gather", lambda own: [own, error])
    with pytest.raises(type(error)):
        distributed.together(lambda: "done")


def test_a_bad_batch_is_kept_in_the_order_of_the_step(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = [collate([[number, 9]], [[number]]) for number in (5, 6, 7, 8)]

    def of_three(own: list[Batch]) -> list[list[Batch]]:
        assert len(own) == 2, "a micro-batch without labels is another process's"
        return [own, [step[1]], [step[2]]]

    monkeypatch.setattr(distributed, "gather", of_three)
    session = cast(Session, SimpleNamespace(newest=None, run=run))
    idle = step[0].without_labels()
    result = StepResult(float("nan"), 4, float("nan"), updated=False)
    Session.keep_bad_batch(session, 1, [step[0], step[3], idle], result)
    kept = json.loads(run.bad_batch_file(1).read_text())
    assert [pairs["src_ids"] for pairs in kept["micro_batches"]] == [[[5, 9]], [[6, 9]], [[7, 9]], [[8, 9]]]
