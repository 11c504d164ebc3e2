"""`mt train`: where it trains, how it says that it ended, and its exit codes."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from safetensors.torch import load_file

from mt.training.progress import Progress
from tests.fixture_types import Call


def test_the_run_is_called_like_its_config(call: Call, tiny_config_file: Path) -> None:
    code, out, err = call("train", "--config", tiny_config_file, "--set", "training.max_steps=2")
    assert (code, out) == (0, "")
    assert "Finished: training.max_steps (2) reached, after 2 steps" in err
    assert "Best validation BLEU: " in err
    assert 'mt translate --run runs/tiny "..."' in err
    assert "tensorboard --logdir runs/tiny/tensorboard  # http://localhost:6006/#timeseries" in err
    assert "tensorboard --logdir runs  # http://localhost:6006/#hparams" in err
    assert Path("runs/tiny/checkpoints/step_0000002").is_dir()
    code, _, err = call("train", "--config", tiny_config_file, "--set", "training.max_steps=2")
    assert code == 0
    assert err.startswith("runs/tiny is finished: training.max_steps (2) reached. To train longer")
    assert len(err.splitlines()) == 1
    code, _, err = call("train", "-c", tiny_config_file, "--restart", "--set", "training.max_steps=1")
    assert code == 0
    assert "moved the old run to runs/tiny.old-1" in err
    assert sorted(path.name for path in Path("runs").iterdir()) == ["tiny", "tiny.old-1"]


def test_the_config_of_a_run_continues_it(call: Call, tiny_config_file: Path) -> None:
    assert call("train", "--config", tiny_config_file, "--set", "training.max_steps=1")[0] == 0
    longer = ("--config", "runs/tiny/config.yaml", "--set", "training.max_steps=2")
    assert "which exists already" in call("check", *longer)[1]
    assert "elsewhere, which is new" in call("check", *longer, "--run", "elsewhere")[1]
    assert call("train", *longer)[0] == 0
    assert Path("runs/tiny/checkpoints/step_0000002").is_dir()
    assert not Path("runs/config").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_answered_with_its_exit_code(
    number: signal.Signals, call: Call, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_step = Progress.step

    def interrupt(self: Progress, *arguments: object, **named: object) -> None:
        show_step(self, *arguments, **named)  # type: ignore[arg-type]
        os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "step", interrupt)
        code, _, err = call("train", "-c", tiny_config_file)
        assert code == 128 + number
        assert f"Stopped at step 1, saved: {number.name}." in err
        assert "The same command resumes the run." in err
        code, _, err = call("train", "-c", tiny_config_file, "--restart")
        assert code == 128 + number
        assert "The same command without --restart resumes the run." in err
    code, _, err = call("train", "-c", tiny_config_file)
    assert code == 0
    assert "resuming runs/tiny from step 1" in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_is_stopped_and_resumed_is_the_one_that_never_was(
    number: signal.Signals, call: Call, start: Callable[..., "subprocess.Popen[str]"], tiny_config_file: Path
) -> None:
    options = ["--set", "training.max_steps=3000", "--set", "validation.every_steps=3000"]
    with start("train", "-c", tiny_config_file, *options) as process:
        metrics = Path("runs/tiny/metrics.jsonl")
        while not metrics.exists() or not metrics.read_text():
            assert process.poll() is None
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    stopped_at = int(err.split("Stopped at step ")[1].split(",")[0])
    further = ["--set", f"training.max_steps={stopped_at + 5}"]
    assert call("train", "-c", tiny_config_file, *further)[0] == 0
    assert call("train", "-c", tiny_config_file, *further, "--run", "unbroken")[0] == 0
    ours, theirs = (
        load_file(path / "checkpoints" / f"step_{stopped_at + 5:07}" / "model.safetensors")
        for path in (Path("runs/tiny"), Path("unbroken"))
    )
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    steps = [
        line["step"] for line in map(json.loads, metrics.read_text().splitlines()) if line["kind"] == "train"
    ]
    assert steps == list(range(1, stopped_at + 6))


def test_a_bug_of_ours_asks_for_a_report_and_its_traceback_is_in_the_log(
    call: Call, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise KeyError("made up")

    monkeypatch.setattr("mt.training.run.train", fail)
    code, out, err = call("train", "--config", tiny_config_file, "--run", "mine")
    assert (code, out) == (1, "")
    assert "a bug in mt: KeyError: 'made up'. Please report it" in err.splitlines()[-1]
    assert "mine/train.log" in err.splitlines()[-1]
    assert "Traceback" not in err
    log = Path("mine/train.log").read_text()
    assert "Failed: KeyError: 'made up'\nTraceback (most recent call last):" in log
    assert log.rstrip().endswith("KeyError: 'made up'")
    # Nor is a mistake of the user, or a full disk, explained by one.
    monkeypatch.setattr("mt.training.run.train", lambda *_: Path("nowhere").read_text())
    assert call("train", "--config", tiny_config_file, "--run", "other")[0] == 2
    assert "Traceback" not in Path("other/train.log").read_text()


def test_a_restart_that_is_stopped_before_its_first_step_is_repeated_as_it_was(
    call: Call, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("train", "-c", tiny_config_file, "--set", "training.max_steps=1")[0] == 0
    monkeypatch.setattr("mt.training.run.load_corpus", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    code, _, err = call("train", "-c", tiny_config_file, "--restart")
    assert code == 143
    assert "The same command resumes the run." in err
    assert not Path("runs/tiny.old-1").exists()
