"""A run that was stopped and resumed is the run that never stopped, bit for bit."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import mt.training.run
from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.errors import Interrupted
from mt.reports.facts import read_sessions
from mt.run_directory import RunDirectory
from mt.training import validation
from mt.training.loss import Objective
from mt.training.progress import Progress
from mt.training.resume import describe_environment
from mt.training.validation import ValidationResult
from tests.fixture_types import AssertSame
from tests.training.steps import Training, assert_equal, kill_at_call, raising, scripted


@pytest.mark.parametrize("stops", [[2, 6, 9], range(1, 12)], ids=["three", "each"])
def test_signals_at_any_step(
    stops: Sequence[int], unbroken: RunDirectory, train: Training, tmp_path: Path, assert_same: AssertSame
) -> None:
    # Each session finds the run under another name, as on a disk that is mounted elsewhere.
    path = tmp_path / "run"
    for step in stops:
        outcome = train(step=step, into=path)
        assert (outcome.finished, outcome.exit_code, outcome.counters.step) == (None, 143, step)
        assert (path / "checkpoints" / "latest").read_text() == f"step_{step:07}\n"
        path = path.rename(tmp_path / f"moved-{step}")
    outcome = train(into=path)
    assert outcome.finished == "training.max_steps (12) reached"
    assert_same(RunDirectory(path), unbroken)


def test_a_copy_without_the_newest_checkpoints_continues_from_an_older_one(
    train: Training, finished: RunDirectory, unbroken: RunDirectory, assert_same: AssertSame
) -> None:
    for newer in ("step_0000009", "step_0000012"):
        shutil.rmtree(finished.checkpoints_dir / newer)
    outcome = train()
    assert (outcome.was_finished, outcome.counters.step) == (False, 12)
    assert_same(finished, unbroken)
    assert read_sessions(finished)[-1].first_step == 8


def test_limits_that_are_raised(
    unbroken: RunDirectory, train: Training, run: RunDirectory, assert_same: AssertSame
) -> None:
    for steps in (4, 8, 12):
        outcome = train(f"training.max_steps={steps}")
        assert outcome.counters.step == steps
        assert not outcome.was_finished
    assert_same(run, unbroken)


def test_a_limit_that_is_lowered_to_where_a_run_was_stopped_ends_it_with_a_validation(
    train: Training, run: RunDirectory
) -> None:
    train(step=7)
    outcome = train("training.max_steps=7")
    assert outcome.finished == "training.max_steps (7) reached"
    checkpoint = CheckpointStore(run.checkpoints_dir).require("latest")
    assert (checkpoint.step, "bleu" in checkpoint.metrics) == (7, True)
    assert load_config(run.config_file).training.max_steps == 7
    assert train("training.max_steps=7").was_finished


def test_the_weights_that_are_validated_are_those_that_are_saved(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated: list[dict[str, torch.Tensor]] = []

    def validate(objective: Objective, *arguments: Any, **named: Any) -> ValidationResult:
        validated.append({name: weight.clone() for name, weight in objective.model.weights().items()})
        return validation.validate(objective, *arguments, **named)

    monkeypatch.setattr(mt.training.session, "validate", validate)
    train("training.ema_decay=0.8")
    checkpoint = CheckpointStore(run.checkpoints_dir).require("latest")
    assert_equal(validated[-1], load_file(checkpoint.folder / "model.safetensors"))


@pytest.mark.parametrize(
    "options",
    [
        # A point of the curve is that of all its steps, in however many sessions.
        ("training.ema_decay=0.8", "training.log_every_steps=5"),
        ("training.r_drop=2", "model.dropout=0.3"),
        ("training.muon=true", "training.muon_interval=3", "training.softmax_interval=4"),
        ("training.bpe_dropout=0.3", "tokenizer.kind=bpe", "tokenizer.max_size=400", "data.max_length=200"),
        ("training.guided_alignment=0.5", "training.unknown_share=0.4"),
        ("training.precision=bf16",),
        (
            "training.guided_alignment=0.5",
            "training.keep_share=0.3",
            "tokenizer.kind=bpe",
            "tokenizer.max_size=400",
            "as_written.upper=0.3",
            "as_written.typos=0.3",
            "as_written.joined=0.3",
        ),
        (
            "data.sources.back.path={corpus}",
            "data.sources.back.src=de",
            "data.sources.back.tgt=en",
            "data.sources.back.num_train_pairs=60",
            "data.temperature=5",
            "validation.over=all",
            "training.guided_alignment=0.5",
        ),
    ],
    ids=["average", "R-Drop", "Muon", "BPE-dropout", "copying", "bf16", "as people write", "directions"],
)
def test_with_other_ways_of_training(
    options: Sequence[str],
    unbroken: RunDirectory,
    train: Training,
    run: RunDirectory,
    tmp_path: Path,
    tiny_corpus: Path,
    assert_same: AssertSame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = [option.format(corpus=tiny_corpus) for option in options]
    # Any CPU computes in bf16, be it slowly.
    monkeypatch.setattr("mt.device.usable_precisions", lambda _: ["bf16"])
    other = RunDirectory(tmp_path / "other")
    train(*options, into=other)
    # In another three sessions, of which the last begins within the second epoch.
    for step in (2, 7, None):
        train(*options, step=step)
    assert_same(run, other)
    # Each of them is another training than the plain one.
    newest = [each.checkpoints_dir / "step_0000012" for each in (other, unbroken)]
    weights = [load_file(folder / "model.safetensors") for folder in newest]
    assert not torch.equal(*(each["decoder.norm.weight"] for each in weights))
    if "training.ema_decay=0.8" in options:
        # Training itself is that of the plain run; what is saved as the model is not.
        state = load_file(newest[0] / "training_state.safetensors")
        assert_equal({name: state[f"weights/{name}"] for name in weights[1]}, weights[1])
    environments = [json.loads((folder / "checkpoint.json").read_text())["environment"] for folder in newest]
    precision = "bf16" if "training.precision=bf16" in options else "float32"
    assert [environment["precision"] for environment in environments] == [precision, "float32"]


def test_crashes_lose_only_what_was_not_saved(
    unbroken: RunDirectory, train: Training, run: RunDirectory, assert_same: AssertSame
) -> None:
    for step in (2, 5, 11):  # Steps 0, 4 and 9 are the last that were saved.
        train.crash(step=step)
        with run.metrics_file.open("a") as file:
            file.write('{"step": 1, "kind": "tra')
    train()
    assert_same(run, unbroken)


def test_what_does_not_change_the_mathematics_may_change(
    unbroken: RunDirectory, train: Training, run: RunDirectory
) -> None:
    train("checkpoint.every_steps=1", step=5)
    train("validation.every_steps=3", "validation.batch_sentences=2", "checkpoint.keep=1")
    weights = [load_file(r.checkpoints_dir / "step_0000012" / "model.safetensors") for r in (run, unbroken)]
    assert_equal(*weights)


def test_early_stopping_counts_on(train: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = "training.max_steps=null", "validation.every_steps=2"
    for path, stops in ((tmp_path / "unbroken", ()), (tmp_path / "stopped", (1, 7, 9))):
        monkeypatch.setattr(mt.training.session, "validate", scripted([5, 9, 8, 9, 8.5, 99]))
        for step in stops:
            train(*endless, "validation.patience=3", "checkpoint.keep=1", step=step, into=path)
        outcome = train(*endless, "validation.patience=3", "checkpoint.keep=1", into=path)
        assert outcome.finished == "no improvement in 3 validations (validation.patience)"
        assert outcome.counters.step == 10
        assert outcome.counters.best_value == 9
        checkpoints = path / "checkpoints"
        assert (checkpoints / "best").read_text() == "step_0000004\n"
        assert sorted(folder.name for folder in checkpoints.glob("step*")) == ["step_0000004", "step_0000010"]
    # Patience is a limit like others: more of it continues.
    assert train(*endless, "validation.patience=4", into=path).counters.best_value == 99


def test_a_checkpoint_gets_the_scores_of_the_validation_that_it_owed(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(run.checkpoints_dir)
    for validate, max_steps in ((scripted([9]), 2), (raising(Interrupted), 6)):
        monkeypatch.setattr(mt.training.session, "validate", validate)
        train("validation.every_steps=2", f"training.max_steps={max_steps}")
    assert (store.require("latest").step, store.require("latest").metrics) == (4, {})
    # A worse one, after which nothing else would be saved.
    monkeypatch.setattr(mt.training.session, "validate", scripted([8]))
    train("validation.every_steps=2", "training.max_steps=6")
    assert store.require("step_0000004").metrics["bleu"] == 8
    assert store.require("best").step == 2


def test_a_checkpoint_saved_because_of_a_signal_after_a_validation_has_its_scores(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at_call(monkeypatch, Progress, "validation", 2)
    # The second one is worse, so that only the signal is a reason to save.
    monkeypatch.setattr(mt.training.session, "validate", scripted([9, 8]))
    train("validation.every_steps=2", "checkpoint.every_steps=100")
    latest = CheckpointStore(run.checkpoints_dir).require("latest")
    assert (latest.step, latest.metrics["bleu"]) == (4, 8)


def test_what_belongs_to_the_whole_run_remains_if_the_validation_of_step_1_is_interrupted(
    train: Training, tmp_path: Path, assert_same: AssertSame
) -> None:
    """The chart layout, the hyper-parameters and the report on the corpus are drawn at step 1."""
    options = ("training.max_steps=2", "validation.every_steps=1")
    unbroken, broken = RunDirectory(tmp_path / "unbroken"), RunDirectory(tmp_path / "broken")
    train(*options, into=unbroken)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mt.training.session, "validate", raising(Interrupted))
        assert train(*options, into=broken).counters.step == 1
    train(*options, into=broken)
    assert_same(broken, unbroken)


def test_resuming_elsewhere_says_what_differs_and_continues(
    train: Training, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    train("training.max_steps=2")
    with monkeypatch.context() as patch:
        patch.setattr(
            mt.training.resume,
            "describe_environment",
            lambda *known: describe_environment(*known) | {"num_threads": 64, "torch": "9.9", "new": 1},
        )
        assert train("training.max_steps=4").counters.step == 4
    # But not what was not recorded.
    warnings = [message for message in caplog.messages if "not bit-exact" in message]
    assert warnings == [
        f"resuming is not bit-exact, because this has changed: torch: {torch.__version__} -> 9.9",
        f"resuming is not bit-exact, because this has changed: num_threads: {torch.get_num_threads()} -> 64",
    ]
    caplog.clear()
    # And where nothing differs, nothing is said; the newest checkpoint is of the other place.
    assert train("training.max_steps=5").counters.step == 5
    assert caplog.text.count("not bit-exact") == 2
    caplog.clear()
    train("training.max_steps=6")
    assert "not bit-exact" not in caplog.text
