"""What `mt train` does besides resuming exactly: when it stops, what it refuses, and what it never loses."""

import json
import logging
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import mt.training.resume
import mt.training.run
from mt.config.load import load_config
from mt.data.text_form import TextForm
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import CheckpointError, DataError, EngineError, RunError
from mt.evaluation.record import Score
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.special_tokens import UNK
from mt.training.loss import Objective
from mt.training.metrics_file import read_points
from mt.training.progress import Progress
from mt.training.resume import with_training
from mt.training.run import run_training
from mt.training.schedule import learning_rate
from mt.training.validation import ValidationResult
from tests.fixture_types import MakeConfig, TrainUntil


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


def test_a_finished_run_is_left_as_it_is(make_config: MakeConfig, run: RunDirectory) -> None:
    config = make_config("training.max_steps=2")
    assert not run_training(config, run).was_finished
    before = contents(run.path)
    outcome = run_training(config, run)
    assert outcome.was_finished
    assert outcome.finished == "training.max_steps (2) reached"
    assert (outcome.counters.step, outcome.exit_code) == (2, 0)
    # Nor does it take over a path that the next experiment is to have.
    assert run_training(make_config("training.max_steps=2", "data.path=elsewhere"), run).was_finished
    assert contents(run.path) == before
    assert run_training(make_config("training.max_steps=3"), run).counters.step == 3


def test_the_translations_that_are_shown_are_spread_over_the_validation_split(
    make_config: MakeConfig, run: RunDirectory, tiny_corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mt"):
        run_training(make_config("training.max_steps=1"), run)
    sentences = (tiny_corpus / "validation.en").read_text().splitlines()
    assert len(sentences) == 12
    assert re.findall(r"  source +(.*)$", caplog.text, re.MULTILINE) == [sentences[0], sentences[6]]


@pytest.mark.parametrize(("max_steps", "max_epochs", "total"), [(1, 5, 1), (100, 1, 6)])
def test_the_steps_that_are_foreseen_are_those_of_the_limit_that_comes_first(
    max_steps: int,
    max_epochs: int,
    total: int,
    make_config: MakeConfig,
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreseen: list[Any] = []

    def shown(*arguments: Any, **options: Any) -> Progress:
        foreseen.append(options["total_steps"])
        return Progress(*arguments, **options)

    monkeypatch.setattr(mt.training.run, "Progress", shown)
    run_training(make_config(f"training.max_steps={max_steps}", f"training.max_epochs={max_epochs}"), run)
    assert foreseen == [total]


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


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("max_epochs=2", "training.max_epochs (2) reached"),
        ("max_minutes=0.0001", "training.max_minutes (0.0001) reached"),
    ],
)
def test_each_limit_ends_a_run(limit: str, reason: str, make_config: MakeConfig, run: RunDirectory) -> None:
    outcome = run_training(make_config("training.max_steps=null", f"training.{limit}"), run)
    assert outcome.finished == reason
    assert outcome.counters.step <= 12
    last = json.loads(run.metrics_file.read_text().splitlines()[-1])
    assert (last["kind"], last["step"]) == ("validation", outcome.counters.step)
    assert outcome.counters.epoch == 2 or "epochs" not in limit


def test_a_process_ends_at_the_time_that_the_first_one_has(
    make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {float: 3600.0}
    monkeypatch.setattr("mt.distributed.broadcast", lambda value: first.get(type(value), value))
    outcome = run_training(make_config("training.max_minutes=30"), run)
    assert (outcome.counters.step, outcome.finished) == (1, "training.max_minutes (30) reached")


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("training.seed=2", "training.seed: 1 -> 2"),
        ("tokenizer.min_frequency=2", "tokenizer.min_frequency: 1 -> 2"),
    ],
)
def test_another_config_is_refused(
    change: str, difference: str, make_config: MakeConfig, run: RunDirectory
) -> None:
    run_training(make_config("training.max_steps=1"), run)
    before = contents(run.path)
    with pytest.raises(RunError, match="started with another config") as refusal:
        run_training(make_config("training.max_steps=3", change), run)
    lines = str(refusal.value).splitlines()
    assert lines[1:-1] == [f"  {difference}"]
    assert all(flag in str(refusal.value) for flag in ("--run PATH", "--restart"))
    assert contents(run.path) == before


def test_a_run_keeps_what_it_began_with_where_the_config_says_nothing(
    make_config: MakeConfig, run: RunDirectory
) -> None:
    began = (
        "training.max_steps=1",
        "cleaning.unicode_form=none",
        "cleaning.invisible=keep",
        "training.seed=7",
    )
    run_training(make_config(*began), run)
    text = run.config_file.read_text(encoding="utf-8")
    # As a run that is older than the option.
    run.config_file.write_text(re.sub(r"(  #[^\n]*\n)+  invisible: keep\n", "", text), encoding="utf-8")
    assert run_training(make_config("training.max_steps=2"), run).counters.step == 2
    assert Tokenizer.load(run.src_tokenizer_file).form == TextForm()
    assert run_training(make_config("training.max_steps=2"), run, restart=True).counters.step == 2
    assert Tokenizer.load(run.src_tokenizer_file).form == TextForm("NFC", "drop")


def test_restart_moves_the_old_run_aside(
    make_config: MakeConfig, run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    run_training(make_config("training.max_steps=2"), run)
    before = contents(run.path)
    outcome = run_training(make_config("training.max_steps=1", "training.seed=2"), run, restart=True)
    assert outcome.counters.step == 1
    assert contents(run.path.with_name("mine.old-1")) == before
    assert "mine.old-1" in caplog.text
    run_training(make_config("training.max_steps=1"), run, restart=True)
    assert contents(run.path.with_name("mine.old-1")) == before
    # Only the seed differs.
    names = "mine", "mine.old-2"
    files = [run.path.with_name(name) / "checkpoints/step_0000001/model.safetensors" for name in names]
    assert files[0].read_bytes() != files[1].read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        ("data.path=nowhere.tsv",),
        ("tokenizer.kind=file", "tokenizer.shared=true", "tokenizer.path=./nowhere.json"),
    ],
)
def test_restart_with_a_wrong_path_leaves_the_old_run_where_it_is(
    options: Sequence[str], make_config: MakeConfig, run: RunDirectory
) -> None:
    run_training(make_config("training.max_steps=1"), run)
    before = contents(run.path)
    with pytest.raises(DataError, match="nowhere"):
        run_training(make_config(*options), run, restart=True)
    assert contents(run.path) == before
    assert [path.name for path in run.path.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize("text", ["mine: true\n", "# my notes\ndata: {path: nowhere, src: en, tgt: de}\n"])
def test_a_config_of_the_users_is_not_written_over(
    text: str, make_config: MakeConfig, run: RunDirectory
) -> None:
    config = make_config("data.path=nowhere")
    run.path.mkdir(parents=True)
    run.config_file.write_text(text)
    with pytest.raises(RunError, match=r"config.yaml was not written by training, .*Rename that file"):
        run_training(config, run)
    assert run.config_file.read_text() == text


def test_a_first_attempt_that_failed_is_not_in_the_way(
    make_config: MakeConfig, run: RunDirectory, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("train", "validation", "test"):
        (other / f"{name}.en").write_text("a very odd vocabulary\n" * 9)
        (other / f"{name}.de").write_text("ein sonderbarer Wortschatz\n" * 9)
    # It fails when its tokenizers have been made and saved: not one pair is short enough.
    with pytest.raises(DataError, match=r"9 are longer than data.max_length \(4\)"):
        run_training(make_config(f"data.path={other}", "data.max_length=4", "training.seed=5"), run)
    assert run.src_tokenizer_file.exists()
    run_training(make_config("training.max_steps=1"), run)
    # No tokenizer of the other corpus is left, to which all words would be unknown.
    tokenizer = Tokenizer.load(run.src_tokenizer_file)
    assert tokenizer.decode(tokenizer.encode("my aunt")) == "my aunt"
    assert tokenizer.decode(tokenizer.encode("odd")) == UNK


def test_vocabularies_come_from_the_training_split_alone(
    make_config: MakeConfig, tiny_corpus: Path, run: RunDirectory
) -> None:
    run_training(make_config("training.max_steps=1"), run)
    for language, file in (("en", run.src_tokenizer_file), ("de", run.tgt_tokenizer_file)):
        vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
        words = (
            (tiny_corpus / f"train.{language}").read_text(encoding="utf-8").replace("!", "").replace(".", "")
        )
        assert set(words.split()) <= vocabulary.keys()
        assert "zebra" in (tiny_corpus / f"validation.{language}").read_text(encoding="utf-8").lower()
        assert not {"zebra", "Zebra"} & vocabulary.keys()


def test_a_changed_corpus_is_refused_before_it_is_encoded(
    make_config: MakeConfig, tiny_corpus: Path, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = run.path.parent.parent / "corpus"
    mine.mkdir(parents=True)
    for file in tiny_corpus.glob("*.??"):
        (mine / file.name).write_bytes(file.read_bytes())
    config = make_config("training.max_steps=1", f"data.path={mine}")
    run_training(config, run)
    more = make_config("training.max_steps=2", f"data.path={mine}")
    for name in ("test.de", "train.en"):
        text = (mine / name).read_text(encoding="utf-8")
        (mine / name).write_text(text.replace("Milch", "Wasser").replace("milk", "water"), encoding="utf-8")
    before = contents(run.path)
    encoded: list[object] = []
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda _, texts: encoded.append(texts))
    with pytest.raises(RunError, match=r"the corpus is not the one that .*mine began with: train and test"):
        run_training(more, run)
    assert not encoded
    # All but the logs, which say so.
    logs = {"train.log": b"", "sessions.jsonl": b""}
    assert contents(run.path) | logs == before | logs


def test_mixed_corpora_may_be_moved_but_not_changed(
    make_config: MakeConfig, tiny_corpus: Path, run: RunDirectory, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for file in tiny_corpus.glob("*.??"):
            (tmp_path / name / file.name).write_bytes(file.read_bytes())

    def train(mix: str, max_steps: int) -> int:
        config = make_config(f"data.mix={tmp_path}/{mix}", f"training.max_steps={max_steps}")
        return run_training(config, run).counters.step

    train("one weight=2", 1)
    assert train("two weight=2", 2) == 2
    with pytest.raises(RunError, match=r"data\.mix: .*one weight=3"):
        train("one weight=3", 3)
    text = (tmp_path / "one" / "train.en").read_text(encoding="utf-8")
    (tmp_path / "one" / "train.en").write_text(text.replace("milk", "water"), encoding="utf-8")
    with pytest.raises(RunError, match=r"the corpus is not the one that .*mine began with: train"):
        train("one weight=2", 3)


def test_tokenizers_of_another_run_are_refused(make_config: MakeConfig, run: RunDirectory) -> None:
    run_training(make_config("training.max_steps=1"), run)
    run.src_tokenizer_file.write_bytes(run.tgt_tokenizer_file.read_bytes())
    with pytest.raises(RunError, match=r"src tokenizer in .*mine is not the one that step_0000001 was"):
        run_training(make_config("training.max_steps=2"), run)


def test_a_second_process_is_refused(make_config: MakeConfig, run: RunDirectory) -> None:
    with run.lock(), pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        run_training(make_config(), run)
    assert not run.exists


@pytest.mark.parametrize(
    "part", ["model.safetensors", "training_state.safetensors", "training_state.json", "checkpoint.json"]
)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_taken(
    part: str, make_config: MakeConfig, run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    run_training(make_config("training.max_steps=4", "checkpoint.every_steps=1"), run)
    damage(run.checkpoints_dir / "step_0000004" / part)
    if not part.startswith("training_state"):  # Translating does not read that one.
        sound = r"Sound checkpoints: step_0000002, step_0000003\."
        for name in ("best", "latest", "step_0000004"):
            with pytest.raises(CheckpointError, match=f"step_0000004 is damaged.*{sound}"):
                ModelTranslator.from_run(run, checkpoint=name, device=torch.device("cpu"))
    caplog.clear()
    assert run_training(make_config("training.max_steps=5"), run).counters.step == 5
    assert "step_0000004 is damaged" in caplog.text
    assert "step_0000004 is damaged" in run.log_file.read_text()
    assert "from step 3" in caplog.text
    assert (run.checkpoints_dir / "latest").read_text() == "step_0000005\n"


def scripted(values: Sequence[float]) -> Callable[..., ValidationResult]:
    """Stands for `validate`: BLEU, and for the loss as well, is the next of these values."""
    left: Iterator[float] = iter(values)

    def validate(*args: object, sources: Sequence[str], **kwargs: object) -> ValidationResult:
        value = next(left)
        scores = {name: Score(name, value, "nrefs:1") for name in ("bleu", "chrf")}
        return ValidationResult(value, scores, list(sources))

    return validate


@pytest.mark.parametrize(("metric", "best"), [("bleu", 6), ("loss", 8)])
def test_best_is_the_best_by_the_metric(
    metric: str, best: int, make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.training.session, "validate", scripted([3, 2, 4, 1, 3]))
    config = make_config(
        f"validation.metric={metric}",
        "validation.every_steps=2",
        "training.max_steps=10",
        "checkpoint.keep=1",
    )
    run_training(config, run)
    assert (run.checkpoints_dir / "best").read_text() == f"step_{best:07}\n"
    assert checkpoints(run) == [f"step_{best:07}", "step_0000010"]
    record = json.loads((run.checkpoints_dir / f"step_{best:07}" / "checkpoint.json").read_text())
    assert record["metrics"][metric] == {6: 4, 8: 1}[best]


def test_nan_gradients_are_skipped_counted_and_in_the_end_an_error(
    make_config: MakeConfig,
    run: RunDirectory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    forward, calls = Objective.forward, iter(range(1000))

    def sometimes_nan(self: Objective, *arguments: object) -> torch.Tensor:
        loss = forward(self, *arguments)  # type: ignore[arg-type]
        return loss * float("nan") if self.training and next(calls) in {0, 4, *range(6, 100)} else loss

    monkeypatch.setattr(Objective, "forward", sometimes_nan)
    config = make_config(
        "training.num_micro_batches=1", "training.max_skipped_steps=3", "checkpoint.every_steps=1"
    )
    with pytest.raises(RunError, match="in 3 steps in a row, the last at step 9"):
        run_training(config, run)
    assert caplog.text.count("skipped: the gradient norm is nan") == 5
    # What was saved last is not spoilt: resuming continues from there, with the counters as they were.
    monkeypatch.setattr(Objective, "forward", forward)
    outcome = run_training(config, run)
    assert (outcome.counters.step, outcome.counters.num_skipped_steps) == (12, 4)


def test_what_the_device_cannot_do_is_refused_before_anything_is_written(
    make_config: MakeConfig, run: RunDirectory
) -> None:
    with pytest.raises(EngineError, match="not in fp16"):
        run_training(make_config("training.precision=fp16"), run)
    assert not run.path.exists()


def test_the_run_is_described_in_its_directory(
    make_config: MakeConfig, run: RunDirectory, tiny_corpus: Path
) -> None:
    config = make_config("training.max_steps=1", "data.max_length=7")
    run_training(config, run)
    # It has no `auto`, which another machine would take for something else.
    assert load_config(run.config_file) == with_training(config, precision="float32", compile=False)
    corpus = json.loads(run.corpus_file.read_text(encoding="utf-8"))
    lengths = [
        len(line.replace("!", " !").replace(".", " .").split()) + 1
        for line in (tiny_corpus / "train.en").read_text().splitlines()
    ]
    assert corpus["dropped_in_training"]["too long"] == sum(length > 7 for length in lengths) > 0
    assert corpus["splits"]["train"]["pairs"] == 160
    environment = json.loads((run.checkpoints_dir / "step_0000001" / "checkpoint.json").read_text())[
        "environment"
    ]
    assert environment["torch"] == torch.__version__
    assert environment["device"] == "cpu"
    assert environment["num_threads"] == torch.get_num_threads()
    log = run.log_file.read_text(encoding="utf-8")
    assert "validation at step 1: loss" in log
    assert "BLEU signature: nrefs:1|case:mixed|eff:no|tok:13a" in log
    assert re.search(r"\d validation pairs longer than data.max_length: translated in parts", log)
    assert (corpus["abbreviations"], corpus["lines_without_letters"]) == ([], 0)


def test_steps_after_the_end_of_the_cosine_are_reported(
    make_config: MakeConfig, run: RunDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    cosine = "schedule.kind=cosine", "schedule.total_steps=6"
    assert run_training(make_config(*cosine, "training.max_steps=6"), run).finished
    assert "has reached zero" not in caplog.text
    run_training(make_config(*cosine, "training.max_steps=null", "training.max_epochs=3"), run)
    assert caplog.text.count("has reached zero at schedule.total_steps (6)") == 1


@pytest.mark.parametrize(("every", "steps", "saved"), [("1", 4, [6, 12]), ("null", 100, [12])])
def test_a_checkpoint_and_a_validation_each_epoch(
    every: str, steps: int, saved: list[int], run: RunDirectory, make_config: MakeConfig
) -> None:
    config = make_config(
        "checkpoint.every_steps=100",
        f"validation.every_steps={steps}",
        f"checkpoint.every_epochs={every}",
        f"validation.every_epochs={every}",
    )
    run_training(config, run)
    points = read_points(run.metrics_file)
    assert [point.step for point in points if point.kind == "validation"] == saved
    assert sorted(int(path.name[5:]) for path in run.checkpoints_dir.glob("step_*")) == saved


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
    before = contents(run.path)
    with pytest.raises(RunError, match=rf"lost its checkpoints: {told_by} show") as refusal:
        run_training(make_config(), run)
    assert "--restart" in str(refusal.value)
    assert contents(run.path) == before
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
    before = contents(run.path)
    with pytest.raises(RunError, match=r"lost its checkpoints: metrics\.jsonl show"):
        run_training(config, run)
    assert contents(run.path) == before


def test_a_run_that_has_lost_its_config_is_refused(make_config: MakeConfig, run: RunDirectory) -> None:
    run_training(make_config("training.max_steps=3"), run)
    run.config_file.unlink()
    before = contents(run.path)
    for restart in (False, True):
        with pytest.raises(
            RunError, match=r"mine has checkpoints but has lost its config\.yaml\. Restore it"
        ):
            run_training(make_config(), run, restart=restart)
    assert contents(run.path) == before


def fail(*_: Any, **__: Any) -> None:
    """Stands for what a killed process does not finish."""
    raise ZeroDivisionError


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
        patch.setattr("mt.training.run.prepare", fail)
        with pytest.raises(ZeroDivisionError):
            run_training(again, run)
    assert run_training(again, run).counters.step == 12
