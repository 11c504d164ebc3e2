"""What `mt train` does besides resuming exactly: when it stops, what it refuses, and what it never loses."""

import json
import logging
import math
import os
import platform
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch

import mt
import mt.training.run
from mt.checkpoint.store import CheckpointStore
from mt.config.load import load_config
from mt.data.text_form import TextForm
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import CheckpointError, DataError, EngineError, MtError, RunError
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.special_tokens import UNK
from mt.training.metrics_file import read_points
from mt.training.progress import Progress
from mt.training.run import run_training
from mt.training.schedule import learning_rate
from mt.training.train_state import TrainState
from tests.fixture_types import MakeConfig
from tests.training.steps import Training, raising, scripted


@pytest.fixture(autouse=True)
def _hear_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mt")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``, but for the lock, which is opened to be asked."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def checkpoints(run: RunDirectory) -> list[str]:
    return sorted(folder.name for folder in run.checkpoints_dir.glob("step*"))


def damage(file: Path) -> None:
    """Flip one bit in the middle, which safetensors itself does not notice."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_a_finished_run_is_left_as_it_is(train: Training, finished: RunDirectory) -> None:
    before = contents(finished.path)
    outcome = train()
    assert outcome.was_finished
    assert outcome.finished == "training.max_steps (12) reached"
    assert (outcome.counters.step, outcome.exit_code) == (12, 0)
    # Nor does it take over a path that the next experiment is to have.
    assert train("data.path=elsewhere").was_finished
    assert contents(finished.path) == before
    outcome = train("training.max_steps=13")
    assert (outcome.counters.step, outcome.was_finished) == (13, False)


def test_the_translations_that_are_shown_are_spread_over_the_validation_split(
    train: Training, tiny_corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mt"):
        train("training.max_steps=1")
    sentences = (tiny_corpus / "validation.en").read_text().splitlines()
    assert len(sentences) == 12
    assert re.findall(r"  source +(.*)$", caplog.text, re.MULTILINE) == [sentences[0], sentences[6]]


@pytest.mark.parametrize(
    ("limits", "total", "reason"),
    [
        ("max_steps=1 max_epochs=5", 1, "training.max_steps (1) reached"),
        ("max_steps=100 max_epochs=1", 6, "training.max_epochs (1) reached"),
        ("max_steps=null max_minutes=0.0001", None, "training.max_minutes (0.0001) reached"),
    ],
)
def test_the_limit_that_comes_first_ends_a_run_and_its_steps_are_foreseen(
    limits: str,
    total: int | None,
    reason: str,
    train: Training,
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreseen: list[Any] = []

    def shown(*arguments: Any, **options: Any) -> Progress:
        foreseen.append(options["total_steps"])
        return Progress(*arguments, **options)

    monkeypatch.setattr(mt.training.run, "Progress", shown)
    outcome = train(*(f"training.{limit}" for limit in limits.split()))
    assert (foreseen, outcome.finished) == ([total], reason)
    assert outcome.counters.step == total or total is None
    last = read_points(run.metrics_file)[-1]
    assert (last.kind, last.step) == ("validation", outcome.counters.step)


def test_a_figure_that_was_not_finite_is_read_as_nan(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 3, "kind": "train", "loss": null, "rate": 0.5}\n')
    [point] = read_points(tmp_path / "metrics.jsonl")
    assert math.isnan(point.figures.pop("loss"))
    assert (point.step, point.kind, point.figures) == (3, "train", {"rate": 0.5})


def test_each_step_has_its_own_learning_rate(
    unbroken: RunDirectory, make_config: MakeConfig, read_metrics: Callable[[Path], Any]
) -> None:
    config = make_config()
    points = [point for point in read_metrics(unbroken.metrics_file) if point["kind"] == "train"]
    assert [point["learning_rate"] for point in points] == [
        learning_rate(step, config.schedule, d_model=config.model.d_model) for step in range(1, 13)
    ]


def test_a_process_ends_at_the_time_that_the_first_one_has(
    train: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {float: 3600.0}
    monkeypatch.setattr("mt.distributed.broadcast", lambda value: first.get(type(value), value))
    outcome = train("training.max_minutes=30")
    assert (outcome.counters.step, outcome.finished) == (1, "training.max_minutes (30) reached")


def test_a_run_keeps_what_it_began_with_where_the_config_says_nothing(
    train: Training, run: RunDirectory
) -> None:
    form = "cleaning.unicode_form=none", "cleaning.invisible=keep"
    train("training.max_steps=1", "training.seed=7", *form)
    text = run.config_file.read_text(encoding="utf-8")
    # As a run that is older than the option.
    run.config_file.write_text(re.sub(r"(  #[^\n]*\n)+  invisible: keep\n", "", text), encoding="utf-8")
    assert train("training.max_steps=2").counters.step == 2
    assert Tokenizer.load(run.src_tokenizer_file).form == TextForm()
    assert train("training.max_steps=2", restart=True).counters.step == 2
    assert Tokenizer.load(run.src_tokenizer_file).form == TextForm("NFC", "drop")


def test_restart_moves_the_old_run_aside(
    train: Training, run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    train("training.max_steps=2")
    before = contents(run.path)
    outcome = train("training.max_steps=1", "training.seed=2", restart=True)
    assert outcome.counters.step == 1
    assert contents(run.path.with_name("mine.old-1")) == before
    assert "mine.old-1" in caplog.text
    train("training.max_steps=1", restart=True)
    assert contents(run.path.with_name("mine.old-1")) == before
    # Only the seed differs.
    names = "mine", "mine.old-2"
    files = [run.path.with_name(name) / "checkpoints/step_0000001/model.safetensors" for name in names]
    assert files[0].read_bytes() != files[1].read_bytes()


def test_a_first_attempt_that_failed_is_not_in_the_way(
    train: Training, run: RunDirectory, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("train", "validation", "test"):
        (other / f"{name}.en").write_text("a very odd vocabulary\n" * 9)
        (other / f"{name}.de").write_text("ein sonderbarer Wortschatz\n" * 9)
    # It fails when its tokenizers have been made and saved: not one pair is short enough.
    with pytest.raises(DataError, match=r"9 are longer than data.max_length \(4\)"):
        train(f"data.path={other}", "data.max_length=4", "training.seed=5")
    assert run.src_tokenizer_file.exists()
    train("training.max_steps=1")
    # No tokenizer of the other corpus is left, to which all words would be unknown.
    tokenizer = Tokenizer.load(run.src_tokenizer_file)
    assert tokenizer.decode(tokenizer.encode("my aunt")) == "my aunt"
    assert tokenizer.decode(tokenizer.encode("odd")) == UNK


def test_vocabularies_come_from_the_training_split_alone(tiny_corpus: Path, unbroken: RunDirectory) -> None:
    for language, file in (("en", unbroken.src_tokenizer_file), ("de", unbroken.tgt_tokenizer_file)):
        vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
        text = (tiny_corpus / f"train.{language}").read_text(encoding="utf-8")
        assert set(text.replace("!", "").replace(".", "").split()) <= vocabulary.keys()
        assert "zebra" in (tiny_corpus / f"validation.{language}").read_text(encoding="utf-8").lower()
        assert not {"zebra", "Zebra"} & vocabulary.keys()


def test_a_changed_corpus_is_refused_before_it_is_encoded(
    train: Training,
    tiny_corpus: Path,
    finished: RunDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = Path(shutil.copytree(tiny_corpus, tmp_path / "corpus"))
    for name in ("test.de", "train.en"):
        text = (mine / name).read_text(encoding="utf-8")
        (mine / name).write_text(text.replace("Milch", "Wasser").replace("milk", "water"), encoding="utf-8")
    before = contents(finished.path)
    encoded: list[object] = []
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda _, texts: encoded.append(texts))
    with pytest.raises(RunError, match=r"the corpus is not the one that .*mine began with: train and test"):
        train("training.max_steps=13", f"data.path={mine}")
    assert not encoded
    # All but the logs, which say so.
    logs = {"train.log": b"", "sessions.jsonl": b""}
    assert contents(finished.path) | logs == before | logs


def test_mixed_corpora_may_be_moved_but_not_changed(
    train: Training, tiny_corpus: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        shutil.copytree(tiny_corpus, tmp_path / name)

    def steps_of(mix: str, max_steps: int) -> int:
        return train(f"data.mix={tmp_path}/{mix}", f"training.max_steps={max_steps}").counters.step

    steps_of("one weight=2", 1)
    assert steps_of("two weight=2", 2) == 2
    with pytest.raises(RunError, match=r"data\.sources\.mix1\.weight: .*-> 3"):
        steps_of("one weight=3", 3)
    text = (tmp_path / "one" / "train.en").read_text(encoding="utf-8")
    (tmp_path / "one" / "train.en").write_text(text.replace("milk", "water"), encoding="utf-8")
    with pytest.raises(RunError, match=r"the corpus is not the one that .*mine began with: train"):
        steps_of("one weight=2", 3)


def test_a_second_process_is_refused(train: Training, run: RunDirectory) -> None:
    with run.lock(), pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        train()
    assert not run.exists


@pytest.mark.parametrize(
    "part", ["model.safetensors", "training_state.safetensors", "training_state.json", "checkpoint.json"]
)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_taken(
    part: str, train: Training, run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    train("training.max_steps=4", "checkpoint.every_steps=1")
    damage(run.checkpoints_dir / "step_0000004" / part)
    if not part.startswith("training_state"):  # Translating does not read that one.
        sound = r"Sound checkpoints: step_0000002, step_0000003\."
        for name in ("best", "latest", "step_0000004"):
            with pytest.raises(CheckpointError, match=f"step_0000004 is damaged.*{sound}"):
                ModelTranslator.from_run(run, checkpoint=name, device=torch.device("cpu"))
    caplog.clear()
    assert train("training.max_steps=5").counters.step == 5
    assert "step_0000004 is damaged" in caplog.text
    assert "step_0000004 is damaged" in run.log_file.read_text()
    assert "from step 3" in caplog.text
    assert (run.checkpoints_dir / "latest").read_text() == "step_0000005\n"


@pytest.mark.parametrize(("metric", "best"), [("bleu", 6), ("loss", 8)])
def test_best_is_the_best_by_the_metric(
    metric: str, best: int, train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.training.session, "validate", scripted([3, 2, 4, 1, 3]))
    options = "validation.every_steps=2", "training.max_steps=10", "checkpoint.keep=1"
    train(f"validation.metric={metric}", *options)
    assert (run.checkpoints_dir / "best").read_text() == f"step_{best:07}\n"
    assert checkpoints(run) == [f"step_{best:07}", "step_0000010"]
    record = json.loads((run.checkpoints_dir / f"step_{best:07}" / "checkpoint.json").read_text())
    assert record["metrics"][metric] == {6: 4, 8: 1}[best]


def test_a_run_counts_the_time_of_steps_and_validations_but_not_of_saving(
    train: Training, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, excluded = 0.0, list[float]()

    def let_take(seconds: float, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def slow(*arguments: Any, **options: Any) -> Any:
            nonlocal now
            now += seconds
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, slow)

    let_take(60.0, TrainState, "launch")
    let_take(30.0, mt.training.session, "validate")
    let_take(100.0, CheckpointStore, "save")
    monkeypatch.setattr(mt.training.session, "time", SimpleNamespace(perf_counter=lambda: now))
    monkeypatch.setattr(Progress, "exclude", lambda self, seconds: excluded.append(seconds))
    counters = train("training.max_steps=4").counters
    assert counters.seconds == 4 * 60 + 30
    done = f"after 4 steps, {counters.num_target_tokens:,} target tokens and 4.5 minutes."
    assert f"Finished: training.max_steps (4) reached, {done}" in run.log_file.read_text()
    # The speed is that of the steps: after step 3 it is saved, after step 4 validated and saved.
    assert excluded == [100.0, 30.0, 100.0]


def test_what_the_device_cannot_do_is_refused_before_anything_is_written(
    train: Training, run: RunDirectory
) -> None:
    with pytest.raises(EngineError, match="not in fp16"):
        train("training.precision=fp16")
    assert not run.path.exists()


def test_the_run_is_described_in_its_directory(
    make_config: MakeConfig, run: RunDirectory, tiny_corpus: Path
) -> None:
    config = make_config("training.max_steps=1", "data.max_length=7")
    run_training(config, run)
    # It has no `auto`, which another machine would take for something else.
    resolved = {"precision": "float32", "compile": False}
    assert load_config(run.config_file) == config.with_options(training=resolved)
    corpus = json.loads(run.corpus_file.read_text(encoding="utf-8"))
    lengths = [
        len(line.replace("!", " !").replace(".", " .").split()) + 1
        for line in (tiny_corpus / "train.en").read_text().splitlines()
    ]
    assert corpus["dropped_in_training"]["too long"] == sum(length > 7 for length in lengths) > 0
    assert corpus["splits"]["train"]["pairs"] == 160
    record = json.loads((run.checkpoints_dir / "step_0000001" / "checkpoint.json").read_text())
    assert record["environment"].pop("device_name").startswith(torch.backends.cpu.get_cpu_capability())
    assert record["environment"] == {
        "mt": mt.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokenizers": tokenizers.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": "cpu",
        "precision": "float32",
        "num_threads": torch.get_num_threads(),
        "num_processes": 1,
    }
    log = run.log_file.read_text(encoding="utf-8")
    assert "validation at step 1: loss" in log
    assert "BLEU signature: nrefs:1|case:mixed|eff:no|tok:13a" in log
    assert re.search(r"\d validation pairs longer than data.max_length: translated in parts", log)
    assert (corpus["abbreviations"], corpus["lines_without_letters"]) == ([], 0)


def test_steps_after_the_end_of_the_cosine_are_reported(
    train: Training, caplog: pytest.LogCaptureFixture
) -> None:
    cosine = "schedule.kind=cosine", "schedule.total_steps=6"
    assert train(*cosine, "training.max_steps=6").finished
    assert "has reached zero" not in caplog.text
    train(*cosine, "training.max_steps=null", "training.max_epochs=3")
    assert caplog.text.count("has reached zero at schedule.total_steps (6)") == 1


@pytest.mark.parametrize(
    ("every", "validation_steps", "checkpoint_steps", "validated", "saved"),
    [
        # Each epoch has six steps. Validations are counted by epochs instead, checkpoints by epochs as well.
        ("1", 4, 100, [6, 12], [6, 12]),
        ("2", 4, 5, [12], [5, 10, 12]),
        ("null", 100, 100, [12], [12]),
    ],
)
def test_validations_and_checkpoints_each_epoch(
    every: str,
    validation_steps: int,
    checkpoint_steps: int,
    validated: list[int],
    saved: list[int],
    run: RunDirectory,
    train: Training,
) -> None:
    train(
        f"checkpoint.every_steps={checkpoint_steps}",
        f"validation.every_steps={validation_steps}",
        f"checkpoint.every_epochs={every}",
        f"validation.every_epochs={every}",
    )
    points = read_points(run.metrics_file)
    assert [point.step for point in points if point.kind == "validation"] == validated
    assert checkpoints(run) == [f"step_{step:07}" for step in saved]


OTHER_CONFIG = r"(?s)started with another config:\n  %s\nSet .*--run PATH.* --restart"
OTHER_TOKENIZER = "%s tokenizer in .*mine is not the one that step_0000012 was"
NOWHERE = "--restart tokenizer.kind=file tokenizer.shared=true tokenizer.path=./nowhere.json"
LOST = r"mine has lost its checkpoints: %s show .* --restart.* --run PATH"
NO_CONFIG = r"mine has checkpoints but has lost its config\.yaml\. Restore it .* --run PATH"
NOT_OURS = r"config.yaml was not written by training, .*Rename that file"
NOTES = "# my notes\ndata: {path: nowhere, src: en, tgt: de}\n"
Changes = dict[str, str | None]
"""The text of files, or None for files and folders that are lost, by pattern."""
REFUSED: list[tuple[Changes, str, str]] = [
    ({}, "training.seed=2", OTHER_CONFIG % "training.seed: 1 -> 2"),
    ({}, "tokenizer.min_frequency=2", OTHER_CONFIG % "tokenizer.min_frequency: 1 -> 2"),
    ({}, "--restart data.path=nowhere.tsv", "nowhere"),
    ({}, NOWHERE, "nowhere"),
    ({"src_tokenizer.json": "{}"}, "", OTHER_TOKENIZER % "src"),
    ({"tgt_tokenizer.json": "{}"}, "", OTHER_TOKENIZER % "tgt"),
    ({"*/step_*": None}, "", LOST % "checkpoints/latest and checkpoints/best and metrics.jsonl"),
    ({"*/step_*": None, "*/latest": None}, "", LOST % "checkpoints/best and metrics.jsonl"),
    ({"checkpoints": None}, "", LOST % "metrics.jsonl"),
    # Without its config it is no run that could be moved aside.
    ({"checkpoints": None, "config.yaml": None}, "--restart", "--run PATH"),
    ({"config.yaml": None}, "", NO_CONFIG),
    ({"config.yaml": None}, "--restart", NO_CONFIG),
    ({"*": None, "config.yaml": "mine: true\n"}, "data.path=nowhere", NOT_OURS),
    ({"*": None, "config.yaml": NOTES}, "data.path=nowhere", NOT_OURS),
]


@pytest.mark.parametrize(("changes", "options", "message"), REFUSED)
def test_a_start_that_is_refused_changes_nothing(
    changes: Changes, options: str, message: str, train: Training, finished: RunDirectory
) -> None:
    for pattern, text in changes.items():
        if text is not None:
            (finished.path / pattern).write_text(text)
            continue
        for path in list(finished.path.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = contents(finished.path)
    restart = options.startswith("--restart")
    with pytest.raises(MtError, match=message):
        train("training.max_steps=13", *options.removeprefix("--restart").split(), restart=restart)
    assert contents(finished.path) == before
    assert [path.name for path in finished.path.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize("often", ["checkpoint", "validation"])
def test_metrics_of_steps_after_one_that_must_have_been_saved_show_that_there_was_a_checkpoint(
    often: str, train: Training, run: RunDirectory
) -> None:
    intervals = {"checkpoint": 100, "validation": 100} | {often: 4}
    options = [f"{section}.every_steps={steps}" for section, steps in intervals.items()]
    train.crash(*options, step=9)
    shutil.rmtree(run.checkpoints_dir)
    before = contents(run.path)
    with pytest.raises(RunError, match=r"lost its checkpoints: metrics\.jsonl show"):
        train(*options)
    assert contents(run.path) == before


@pytest.mark.parametrize(
    "options",
    [("checkpoint.every_steps=9", "validation.every_steps=9"), ("validation.every_steps=100",)],
    ids=["after three quarters", "within the first save"],
)
def test_killed_before_the_first_save_it_begins_again(
    options: tuple[str, ...], train: Training, run: RunDirectory
) -> None:
    last_lost = 9 if len(options) == 2 else 3
    train.crash(*options, step=last_lost)
    assert f'"step": {last_lost},' in run.metrics_file.read_text()
    assert not run.checkpoints_dir.exists()
    # Also with another interval, and killed again while it loads.
    again = ("checkpoint.every_steps=1", *options[1:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mt.training.run.prepare", raising(ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            train(*again)
    assert train(*again).counters.step == 12
