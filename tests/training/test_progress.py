"""The figures of a run, read back as TensorBoard and anyone else would read them."""

import io
import json
import logging
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import torch
from tqdm import tqdm

from mt.config.config import Config
from mt.data.batches.stream import StepBatches
from mt.device import DeferredRead
from mt.display import visible
from mt.errors import RunError
from mt.evaluation.record import Score
from mt.run_directory import RunDirectory
from mt.training.counters import Counters
from mt.training.progress import Progress, Sample
from mt.training.run_log import log_file
from mt.training.step import StepResult
from mt.training.validation import ValidationResult

DATA = {"path": "corpus", "src": "en", "tgt": "de"}
CONFIG = Config.model_validate({"data": DATA, "training": {"max_steps": 20}})
RESULT = ValidationResult(
    2.0,
    {
        "own": {"bleu": Score("BLEU", 31.5, "tok:13a"), "chrf": Score("chrF2", 55.0, "nc:6")},
        "web": {"bleu": Score("BLEU", 7.0, "tok:13a"), "chrf": Score("chrF2", 9.0, "nc:6")},
    },
    ["Ein Hund."],
)
SAMPLES = [Sample("A dog.", "Ein Hund.", "Der Hund.")]


def result_of(counters: Counters, loss: float, *, has_point: bool = True, rate: float = 0.0) -> StepResult:
    """Count a step of ten target tokens."""
    counters.step += 1
    counters.num_target_tokens += 10
    counters.record_outcome(loss, 10, updated=True)
    point = counters.next_point() if has_point else None
    return StepResult(
        batches=StepBatches([], 10),
        learning_rate=rate,
        counters=replace(counters),
        metrics=DeferredRead(torch.zeros(4)),
        loss=loss,
        gradient_norm=0.5,
        updated=True,
        point=point,
    )


def take_steps(folder: Path, counters: Counters, until: int) -> None:
    """Steps whose loss is their number, with a point at every second and a validation at every fourth."""
    with Progress(RunDirectory(folder), CONFIG, counters, total_steps=20) as progress:
        while counters.step < until:
            number = counters.step + 1
            progress.step(result_of(counters, float(number), has_point=number % 2 == 0, rate=1e-3 * number))
            if counters.step % 4 == 0:
                progress.validation(counters, RESULT, SAMPLES)


def test_the_event_file_holds_every_tag_and_metrics_the_same_figures(
    tmp_path: Path, read_curves: Callable[[Path], Any]
) -> None:
    take_steps(tmp_path, Counters(seconds=90.0), 8)
    curves = read_curves(tmp_path / "tensorboard")
    assert set(curves) == {
        "learning/train_loss",
        *(f"learning/validation_{name}" for name in ("loss", "perplexity")),
        *(f"learning/validation_{name}" for name in ("bleu", "bleu_on_web", "mean_bleu")),
        *(f"learning/validation_{name}" for name in ("chrf", "chrf_on_web", "mean_chrf")),
        *(f"train/{name}" for name in ("learning_rate", "gradient_norm", "tokens_per_second")),
        "validation/samples/text_summary",
        "_hparams_/session_start_info",
    }
    # The mean over the tokens since the last point.
    assert curves["learning/train_loss"] == [(2, 1.5), (4, 3.5), (6, 5.5), (8, 7.5)]
    assert curves["train/learning_rate"] == [(step, pytest.approx(1e-3 * step)) for step in (2, 4, 6, 8)]
    assert curves["learning/validation_bleu"] == [(4, 31.5), (8, 31.5)]
    assert curves["learning/validation_perplexity"] == [(step, pytest.approx(math.e**2)) for step in (4, 8)]
    step, text = curves["validation/samples/text_summary"][0]
    assert step == 4
    assert all(sentence.encode() in text for sentence in SAMPLES[0])
    from_lines: dict[str, list[tuple[int, object]]] = {}
    for line in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines()):
        assert line["num_target_tokens"] == 10 * line["step"]
        assert (line["minutes"], line["epoch"]) == (1.5, 0)
        for name in line.keys() - {"step", "epoch", "num_target_tokens", "minutes", "kind"}:
            value = None if name == "tokens_per_second" else pytest.approx(line[name])
            from_lines.setdefault(f"{line['kind']}/{name}", []).append((line["step"], value))
    del curves["validation/samples/text_summary"], curves["_hparams_/session_start_info"]
    renamed = {tag.removeprefix("learning/").replace("n_", "n/", 1): tag for tag in curves}
    assert {name: curves[tag] for name, tag in renamed.items()} == from_lines


def test_the_speed_and_the_time_left_are_those_of_training_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mt")
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    state = Counters(step=100)
    with Progress(RunDirectory(tmp_path), CONFIG, state, total_steps=3701) as progress:
        for _ in range(300):
            now += 2.0
            progress.step(result_of(state, 1.0))
            if state.step % 50 == 0:
                now += 500.0  # Somebody validates and saves.
                progress.validation(state, RESULT)
                progress.exclude(500.0)
    lines = [message for message in caplog.messages if message.startswith("step")]
    # A line in ten seconds at most, and for each step that is left two seconds, whatever came between.
    assert [int(line.split()[1]) for line in lines[:3]] == [105, 110, 115]
    for line in lines:
        step = int(line.split()[1])
        hours, rest = divmod(2 * (3701 - step), 3600)
        shown = "loss 1.000  learning rate 0.00e+00  5 tokens/s"
        assert line == f"step {step}  epoch 1  {shown}  {hours}:{rest // 60:02}:{rest % 60:02} left"
    points = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {point["tokens_per_second"] for point in points if point["kind"] == "train"} == {5.0}


def test_what_came_after_the_resumed_step_is_taken_back(
    tmp_path: Path, read_curves: Callable[[Path], Any]
) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    for folder in (unbroken, broken):
        folder.mkdir()
    take_steps(unbroken, Counters(), 12)
    state = Counters()
    take_steps(broken, state, 5)
    saved = replace(state)
    take_steps(broken, state, 11)
    with (broken / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "epoch": 0, "num_tar')  # Where a crash cut it.
    take_steps(broken, saved, 12)
    assert read_curves(broken / "tensorboard") == read_curves(unbroken / "tensorboard")
    lines = [
        [(line["step"], line["kind"], line.get("loss")) for line in map(json.loads, text.splitlines())]
        for text in ((folder / "metrics.jsonl").read_text() for folder in (broken, unbroken))
    ]
    assert lines[0] == lines[1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_costs_lines_of_the_log_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path)
    run.log_file.symlink_to("/dev/full")

    def log_and_fail() -> None:
        with log_file(run):
            for _ in range(3):
                logging.getLogger("mt.anywhere").error("x" * 10_000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log_and_fail()
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "reason", "is_bug"),
    [
        (RunError("it was \x1b[31m"), r"it was \x1b[31m", False),
        (OSError("full"), "OSError: full", False),
        (RuntimeError("gloo has lost it"), "another process was lost", False),
        (RuntimeError("NCCL has lost it"), "another process was lost", False),
        (ZeroDivisionError("a bug"), "ZeroDivisionError: a bug", True),
    ],
)
def test_warnings_and_the_error_that_ends_a_session_are_in_its_log_and_in_its_record(
    error: Exception, reason: str, is_bug: bool, tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path)

    def warn_and_fail() -> None:
        with log_file(run):
            logging.getLogger("mt.anywhere").warning("take care")
            raise error

    with pytest.raises(type(error)):
        warn_and_fail()
    log = run.log_file.read_text(encoding="utf-8")
    assert " WARNING take care\n" in log
    assert f" ERROR Failed: {reason}\n" in log
    assert ("Traceback" in log) == is_bug
    assert getattr(error, "__notes__", []) == ([f"the traceback in {run.log_file}"] if is_bug else [])
    events = [json.loads(line) for line in run.sessions_file.read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", "warning", "end"]
    assert events[1]["text"] == "take care"
    assert visible(events[2]["reason"]) == f"Failed: {reason}"


def test_log_lines_where_stderr_is_not_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "mt")
    take_steps(tmp_path, Counters(), 8)
    assert "validation at step 4: loss 2.000  perplexity 7.389  BLEU 31.50  chrF2 55.00" in caplog.messages
    assert caplog.messages.count("  on web: BLEU 7.00  chrF2 9.00") == 2
    # In the first validation only.
    assert caplog.messages.count("BLEU signature: tok:13a") == 1
    assert "  source      A dog.\n  translation Ein Hund.\n  reference   Der Hund." in caplog.messages
    assert "\r" not in capsys.readouterr().err


def test_a_jump_of_the_loss_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    falling = [9.0 * 0.9**n for n in range(20)]
    noisy = [2.0 + 0.4 * (-1) ** n for n in range(20)]
    state = Counters()
    with Progress(RunDirectory(tmp_path), CONFIG, state, total_steps=61) as progress:
        # The average is about 2.
        for loss in [*falling, *noisy, 5.0, *noisy]:
            progress.step(result_of(state, loss))
    [warning] = [message for message in caplog.messages if "above" in message]
    found = re.fullmatch(r"step 41: the loss jumped to 5\.000, (\d\.\d+) above its average", warning)
    assert found
    assert float(found[1]) == pytest.approx(3.0, abs=0.2)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("peak_rate", [1.0, None])
@pytest.mark.parametrize(
    ("total_steps", "expected"), [(3, r" 67%\|.*\| 2/3 steps, 00:00 left, "), (None, "step 2, ")]
)
def test_a_bar_where_stderr_is_a_terminal(
    total_steps: int | None,
    expected: str,
    peak_rate: float | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "mt")
    monkeypatch.setattr("mt.training.progress.SECONDS_BETWEEN_LINES", 0)
    monkeypatch.setattr(tqdm, "__init__", partialmethod(tqdm.__init__, mininterval=0))
    terminal, state = Terminal(), Counters(best_value=31.5)
    monkeypatch.setattr("sys.stderr", terminal)
    run = RunDirectory(tmp_path)
    with Progress(run, CONFIG, state, total_steps=total_steps, peak_rate=peak_rate) as progress:
        for _ in range(3):
            progress.step(result_of(state, 2.5))
    bars = re.split(r"[\r\n]+", terminal.getvalue())
    share = "" if peak_rate is None else r", \d+ % of the GPU's peak"
    figures = rf"best bleu 31\.50, loss 2\.500, [\d,]+ tokens/s{share} *"
    assert [bar for bar in bars if re.fullmatch(f"epoch 1  {expected}{figures}", bar)]
    assert total_steps is None or "3/3 steps, best" in terminal.getvalue()
    assert caplog.messages == []  # What the bar shows is not logged as well.
