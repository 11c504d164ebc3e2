"""`mt check`, and how `mt train` stops when its time is up, as a shell sees them."""

import os
import re
import signal
from pathlib import Path

import pytest

from mt.training.progress import Progress
from tests.fixture_types import Call


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
    for text in ("soon", "90", "0s", "50m3h", "1.5h", "٣h"):
        code, _, err = call("train", "-c", tiny_config_file, "--max-time", text)
        assert code == 2
        assert f"{text!r} is not a duration. Write it as 90s, 45m, 3h50m or 1d2h" in err
