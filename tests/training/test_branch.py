"""A new run from an older checkpoint of another: the other run as it would have gone on from there."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mt.checkpoint.record import MODEL
from mt.config.config import Config
from mt.errors import MtError, RunError
from mt.reports.sessions import read_sessions
from mt.run_directory import RunDirectory
from mt.training.average import average_checkpoints
from mt.training.metrics_file import read_points
from mt.training.run import Outcome, run_training

MakeConfig = Callable[..., Config]
TrainUntil = Callable[..., Outcome | None]
Contents = dict[Path, tuple[bytes, int]]


@pytest.fixture(scope="module")
def _old(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old") / "old"
    run_training(make_config("checkpoint.keep=10"), RunDirectory(path))
    return path


@pytest.fixture
def old(_old: Path, tmp_path: Path) -> RunDirectory:
    """Twelve steps, with checkpoints at 3, 4 (the first validation, and so the best), 6, 8, 9 and 12."""
    return RunDirectory(Path(shutil.copytree(_old, tmp_path / "old")))


@pytest.fixture
def new(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "new")


def contents(run: RunDirectory) -> Contents:
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.path.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("step", [3, 9])
def test_it_ends_as_the_run_that_it_comes_from(
    step: int,
    old: RunDirectory,
    new: RunDirectory,
    make_config: MakeConfig,
    read_metrics: Callable[[Path], Any],
    read_curves: Callable[[Path], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "mt")
    before = contents(old)
    outcome = run_training(make_config(), new, from_checkpoint=old.checkpoints_dir / f"step_{step:07}")
    assert contents(old) == before
    assert outcome.counters.step == 12
    for pointer in ("latest", "best"):
        names = [(run.checkpoints_dir / pointer).read_text() for run in (old, new)]
        assert names[0] == names[1]
        folders = [run.checkpoints_dir / names[0].strip() for run in (old, new)]
        ours, theirs = (load_file(folder / "model.safetensors") for folder in folders)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert read_metrics(new.metrics_file) == read_metrics(old.metrics_file)
    assert read_curves(new.tensorboard_dir) == read_curves(old.tensorboard_dir)
    assert f"continuing in {new.path} from {old.path}" in new.log_file.read_text()
    assert f"resuming {new.path} from step {step}" in new.log_file.read_text()
    assert [session.first_step for session in read_sessions(new)] == [step]
    # It is a run like any other.
    assert run_training(make_config(), new).was_finished
    assert run_training(make_config("training.max_steps=13"), new).counters.step == 13


def test_the_best_until_then_comes_along(
    old: RunDirectory,
    new: RunDirectory,
    make_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Before any step of its own.
    monkeypatch.setattr("mt.training.run.train", lambda *_: None)
    checkpoint = old.checkpoints_dir / "step_0000006"
    config = make_config()
    run_training(config, new, from_checkpoint=str(checkpoint))
    assert (new.checkpoints_dir / "best").read_text() == "step_0000004\n"
    assert sorted(path.name for path in new.checkpoints_dir.glob("step_*")) == [
        "step_0000004",
        "step_0000006",
    ]
    assert (new.checkpoints_dir / "latest").read_text() == "step_0000006\n"
    # Unless it is damaged.
    change_last_byte(old.checkpoints_dir / "step_0000004" / MODEL)
    newer = RunDirectory(new.path.with_name("newer"))
    run_training(config, newer, from_checkpoint=checkpoint)
    assert [path.name for path in newer.checkpoints_dir.glob("step_*")] == ["step_0000006"]


def test_one_that_is_finished_already_has_no_figures_of_later_steps(
    old: RunDirectory,
    new: RunDirectory,
    make_config: MakeConfig,
    read_curves: Callable[[Path], dict[str, list[tuple[int, object]]]],
) -> None:
    config = make_config("training.max_steps=8")
    assert run_training(config, new, from_checkpoint=old.checkpoints_dir / "step_0000008").was_finished
    assert max(point.step for point in read_points(new.metrics_file)) == 8
    assert read_curves(new.tensorboard_dir) == {
        tag: [(step, value) for step, value in points if step <= 8]
        for tag, points in read_curves(old.tensorboard_dir).items()
    }


AT_SIX = "checkpoints/step_0000006"


@pytest.mark.parametrize(
    ("name", "options", "damaged", "words"),
    [
        (AT_SIX, ["model.dropout=0.3"], "", r"(?s)dropout: 0.2 -> 0.3.*Set these options back"),
        (AT_SIX, [], f"{AT_SIX}/model.safetensors", "step_0000006 is damaged: model.safetensors"),
        (AT_SIX, [], "tgt_tokenizer.json", "the tgt tokenizer in .* is not the one"),
        ("checkpoints/step_0000005", [], "", "no checkpoint 'step_0000005'. Sound checkpoints: step"),
        ("checkpoints/average_0000012", [], "", "is an average, which cannot be trained further"),
        ("", [], "", "is not a checkpoint of a run"),
    ],
)
def test_what_cannot_be_continued_is_refused_and_nothing_made(
    name: str,
    options: list[str],
    damaged: str,
    words: str,
    old: RunDirectory,
    new: RunDirectory,
    make_config: MakeConfig,
) -> None:
    average_checkpoints(old, 2, best=False)
    if damaged:
        change_last_byte(old.path / damaged)
    before = contents(old)
    with pytest.raises(MtError, match=words):
        run_training(make_config(*options), new, from_checkpoint=old.path / name)
    assert contents(old) == before
    assert list(new.path.parent.iterdir()) == [old.path]


def change_last_byte(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def test_another_corpus_is_refused_and_nothing_made(
    old: RunDirectory, new: RunDirectory, make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path
) -> None:
    corpus = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    with (corpus / "train.en").open("a") as english, (corpus / "train.de").open("a") as german:
        english.write("one more\n")
        german.write("einer mehr\n")
    with pytest.raises(RunError, match=r"the corpus is not the one that .*old began with: train"):
        run_training(
            make_config(f"data.path={corpus}"), new, from_checkpoint=old.checkpoints_dir / "step_0000006"
        )
    assert not new.path.exists()


def test_a_run_that_is_there_is_not_touched(
    old: RunDirectory, new: RunDirectory, make_config: MakeConfig
) -> None:
    new.path.mkdir()
    (new.path / "letter.txt").write_text("mine")
    for run in (new, old):
        before = contents(run)
        with pytest.raises(RunError, match=r"exists already.*--run PATH, or resume"):
            run_training(make_config(), run, from_checkpoint=old.checkpoints_dir / "step_0000006")
        assert contents(run) == before


@pytest.mark.parametrize(("every", "saved"), [("1", [6, 12]), ("null", [12])])
def test_a_checkpoint_and_a_validation_each_epoch(
    every: str, saved: list[int], new: RunDirectory, make_config: MakeConfig
) -> None:
    config = make_config(
        "checkpoint.every_steps=100",
        "validation.every_steps=100",
        f"checkpoint.every_epochs={every}",
        f"validation.every_epochs={every}",
    )
    run_training(config, new)
    points = read_points(new.metrics_file)
    assert [point.step for point in points if point.kind == "validation"] == saved
    assert sorted(int(path.name[5:]) for path in new.checkpoints_dir.glob("step_*")) == saved
