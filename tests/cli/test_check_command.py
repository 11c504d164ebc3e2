"""`mt check`, and how `mt train` stops when its time is up, as a shell sees them."""

import math
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mt.data.batches.batch import Batch
from mt.training.loss import Objective
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
    assert "not finite in 4 steps in a row, the last at step 4. Try" in err
    (file,) = Path().glob("runs/*/bad_batches/step_0000002.json")
    assert f"is saved in {file}" in err
    code, out, err = call("check", "--batch", file)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("step 2 of ")
    assert "skipped at loss nan and gradient norm nan; replayed with step_0000003" in lines[0]
    assert "All values are finite in float32 with these weights." in lines
    (place,) = [number for number, line in enumerate(lines) if "sentence pairs, by their loss" in line]
    pairs = lines[place + 1 :]
    assert len(pairs) == 2 * int(lines[place].split()[0])
    shown = {(src[10:], tgt[10:]) for src, tgt in zip(pairs[::2], pairs[1::2], strict=True)}
    sides = [(tiny_config_file.parent / f"train.{side}").read_text().splitlines() for side in ("en", "de")]
    assert shown <= set(zip(*sides, strict=True))


def test_a_batch_of_no_run_is_a_sentence(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "bad_batches" / "step_0000001.json"
    code, _, err = call("check", "--batch", file)
    assert code == 2
    assert err.startswith(f"mt: There is no run in {tmp_path}")


def test_a_good_config(call: Call, tiny_config_file: Path) -> None:
    code, out, err = call("check", "-c", tiny_config_file, "--set", "schedule.warmup_steps=99")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:8]] == [
        *("run", "corpus", "vocabulary", "lengths", "model", "memory", "time", "disk")
    ]
    assert "\nwarning: the warm-up (schedule.warmup_steps 99) is not over when the run ends at step 12" in out
    assert lines[-1] == "This run can begin."
    assert re.search(r"\n    decoded +\w", call("check", "-c", tiny_config_file, "-v")[1])
    assert not Path("runs").exists()
    assert call("train", "-c", tiny_config_file)[0] == 0
    assert "which exists already" in call("check", "-c", tiny_config_file)[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give either --config FILE, to check a run before it begins, or --batch FILE"),
        (["--config", "a.yaml", "--batch", "b.json"], "give either --config FILE"),
        (["--config", "a.yaml", "--checkpoint", "best"], "--checkpoint needs --batch."),
        (["--config", "a.yaml", "--device", "cpu"], "--device needs --batch."),
        (["--batch", "b.json", "--set", "training.seed=2"], "--set needs --config."),
    ],
)
def test_one_thing_is_checked_at_a_time(call: Call, arguments: list[str], says: str) -> None:
    code, out, err = call("check", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"mt: {says}")
    assert err.count("\n") == 1


def test_time_that_is_up_is_answered_with_75(call: Call, tiny_config_file: Path) -> None:
    show_step = Progress.step

    def ring(self: Progress, *arguments: object, **named: object) -> None:
        show_step(self, *arguments, **named)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGALRM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "step", ring)
        code, _, err = call("train", "-c", tiny_config_file, "--max-time", "1h")
    assert code == 75
    assert "Stopped at step 1, saved: the time is up." in err
    assert "The same command resumes the run." in err
    assert call("train", "-c", tiny_config_file, "--max-time", "1h")[0] == 0
    for text in ("soon", "", "90", "0s", "50m3h", "1.5h", "٣h"):
        code, _, err = call("train", "-c", tiny_config_file, "--max-time", text)
        assert code == 2
        assert f"{text!r} is not a duration. Write it as 90s, 45m, 3h50m or 1d2h" in err
