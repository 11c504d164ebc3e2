"""`mt check`, and how `mt train` stops when its time is up, as a shell sees them."""

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import mt.pipeline.prepare
from mt.cli.options import parse_duration
from mt.data.batch import Batch
from mt.errors import ConfigError
from mt.training.objective import Objective
from mt.training.progress import Progress

Call = Callable[..., tuple[int, str, str]]


def test_a_kept_batch_is_looked_into(call: Call, tiny_config_file: Path) -> None:
    forward = Objective.forward

    def nan(self: Objective, batch: Batch, smoothing: float) -> torch.Tensor:
        return forward(self, batch, smoothing) * (math.nan if self.training else 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objective, "forward", nan)
        code, _, err = call("train", "-c", tiny_config_file, "--set", "training.max_skipped_steps=4")
    assert code == 2
    assert "mt: the gradient was no number in 4 steps in a row, the last at step 4. Try" in err
    (command,) = [line.split("with  mt ")[1] for line in err.splitlines() if "step_0000002.json" in line]
    code, out, err = call(*command.split())
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("step 2 of ")
    assert "skipped at loss nan and gradient norm nan; replayed with step_0000003" in lines[0]
    assert "Nothing is wrong with it in float32 and with these weights." in lines
    (place,) = [number for number, line in enumerate(lines) if "sentence pairs, by their loss" in line]
    pairs = lines[place + 1 :]
    assert len(pairs) == 2 * int(lines[place].split()[0])
    shown = {(src[10:], tgt[10:]) for src, tgt in zip(pairs[::2], pairs[1::2], strict=True)}
    sides = [(tiny_config_file.parent / f"train.{side}").read_text().splitlines() for side in ("en", "de")]
    assert shown <= set(zip(*sides, strict=True))


def test_a_batch_of_no_run_is_a_sentence(call: Call, tmp_path: Path) -> None:
    code, _, err = call("check", "--batch", tmp_path / "bad_batches" / "step_0000001.json")
    assert code == 2
    assert err.startswith("mt: There is no run in ")
    assert "Traceback" not in err


def test_the_exit_codes_stand_each_on_its_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    code, out, _ = call("train", "--help")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    for number in (0, 2, 75, 130, 138, 143):
        (line,) = [line for line in lines if line.split(" ")[0] == str(number)]
        assert line.endswith(".")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("45m", 2700), ("3h50m", 13800), ("1d2h", 93600), ("1d1h1m1s", 90061), ("0h1s", 1)],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "0s", "0d0h", "50m3h", "3 h", "-1h", "1.5h", "3H", "1h1h", "٣h"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is no time\. Write it as 90s, 45m, 3h50m or 1d2h"):
        parse_duration(text)


def test_time_that_is_up_is_answered_with_75(call: Call, tiny_config_file: Path) -> None:
    show_step = Progress.step

    def ring(self: Progress, *arguments: object, **named: object) -> None:
        show_step(self, *arguments, **named)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGALRM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "step", ring)
        code, _, err = call("train", "-c", tiny_config_file, "--max-time", "1h")
    assert code == 75
    assert "Stopped at step 1, saved. The same command goes on from there." in err
    assert call("train", "-c", tiny_config_file, "--max-time", "1h")[0] == 0
    code, _, err = call("train", "-c", tiny_config_file, "--max-time", "soon")
    assert code == 2
    assert err.startswith("mt: --max-time: 'soon' is no time.")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_while_data_is_loaded(
    number: signal.Signals, call: Call, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mt.pipeline.prepare, "load_corpus", lambda config: os.kill(os.getpid(), number))
    code, _, err = call("train", "-c", tiny_config_file)
    assert code == 128 + number
    assert "Stopped before the first step. The same command goes on from there." in err
    assert "Traceback" not in err
