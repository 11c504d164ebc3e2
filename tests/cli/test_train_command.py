"""`mt train`: where it trains, how it says that it ended, and its exit codes; whoever watches it may go."""

import html
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from safetensors.torch import load_file

from mt.run_directory import RunDirectory
from mt.training.progress import Progress
from mt.training.run import run_training
from tests.fixture_types import Call, MakeConfig, Refuse, Start
from tests.processes import environment

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Of a library that TensorBoard carries.
    from tensorboard.plugin_util import markdown_to_safe_html  # type: ignore[import-untyped]

RUN = Path("runs/tiny")
LONGEST_SECONDS = 120


def assert_same_weights(checkpoint: str, ours: Path, theirs: Path) -> None:
    one, other = (
        load_file(path / "checkpoints" / checkpoint / "model.safetensors") for path in (ours, theirs)
    )
    assert all(one[name].equal(other[name]) for name in other)


def trained_steps() -> list[int]:
    lines = map(json.loads, (RUN / "metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if line["kind"] == "train"]


def test_the_run_is_called_like_its_config(succeed: Call, tiny_config_file: Path) -> None:
    train = ("train", "--config", tiny_config_file, "--set", "training.max_steps=2")
    _, out, err = succeed(*train)
    assert out == ""
    assert "Finished: training.max_steps (2) reached, after 2 steps" in err
    assert "Best validation BLEU: " in err
    assert 'mt translate --run runs/tiny "..."' in err
    assert "mt evaluate --run runs/tiny --split test\n" in err
    assert "tensorboard --logdir runs/tiny/tensorboard  # http://localhost:6006/#timeseries" in err
    assert "tensorboard --logdir runs  # http://localhost:6006/#hparams" in err
    assert (RUN / "checkpoints/step_0000002").is_dir()
    err = succeed(*train).err
    assert err.startswith(
        "runs/tiny is finished: training.max_steps (2) reached. To train longer, raise that limit;"
    )
    assert "for a new run from its weights, mt init --init-from runs/tiny --data " in err
    assert len(err.splitlines()) == 1
    err = succeed("train", "-c", tiny_config_file, "--restart", "--set", "training.max_steps=1").err
    assert "moved the old run to runs/tiny.old-1" in err
    assert sorted(path.name for path in Path("runs").iterdir()) == ["tiny", "tiny.old-1"]


def test_a_run_whose_learning_rate_has_ended_is_not_trained_longer(
    succeed: Call, tiny_config_file: Path
) -> None:
    cosine = "--set schedule.kind=cosine --set schedule.total_steps=6 --set training.max_steps=6"
    train = ("train", "-c", tiny_config_file, *cosine.split())
    succeed(*train)
    assert "raise that limit and schedule.total_steps in another run with --run PATH;" in succeed(*train).err


def test_the_config_of_a_run_continues_it(succeed: Call, tiny_config_file: Path) -> None:
    succeed("train", "--config", tiny_config_file, "--set", "training.max_steps=1")
    succeed("train", "--config", "runs/tiny/config.yaml", "--set", "training.max_steps=2")
    assert (RUN / "checkpoints/step_0000002").is_dir()
    assert not Path("runs/config").exists()


def test_a_run_begins_with_the_weights_of_the_checkpoint_that_is_named(
    succeed: Call, trained: RunDirectory, tiny_config_file: Path
) -> None:
    for origin, checkpoint in (("tiny", "step_0000100"), ("tiny@latest", "step_0000200")):
        options = ("--set", "training.max_steps=1", "--set", "model.d_model=32", "--run", checkpoint)
        succeed("train", "-c", tiny_config_file, *options, "--init-from", origin)
        config = Path(checkpoint, "config.yaml").read_text()
        assert "  run: runs/tiny\n" in config
        assert f"  checkpoint: {checkpoint}\n" in config


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGINT, "SIGINT"),
        (signal.SIGTERM, "SIGTERM"),
        (signal.SIGHUP, "SIGHUP"),
        (signal.SIGUSR1, "SIGUSR1"),
        (signal.SIGALRM, "the time is up"),
    ],
)
def test_a_signal_is_answered_with_its_exit_code(
    number: signal.Signals, said: str, call: Call, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show_step = Progress.step

    def interrupt(self: Progress, *arguments: object, **named: object) -> None:
        show_step(self, *arguments, **named)  # type: ignore[arg-type]
        os.kill(os.getpid(), number)

    train = ("train", "-c", tiny_config_file, "--max-time", "1h")
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "step", interrupt)
        for more, without in (((), ""), (("--restart",), " without --restart")):
            code, _, err = call(*train, *more)
            assert code == (75 if number == signal.SIGALRM else 128 + number)
            assert f"Stopped at step 1, saved: {said}." in err
            assert f"The same command{without} resumes the run." in err
    code, _, err = call("train", "-c", tiny_config_file)
    assert (code, "resuming runs/tiny from step 1" in err) == (0, True)


def test_a_duration_has_units(call: Call, refuse: Refuse, tiny_config_file: Path) -> None:
    given: list[float | None] = []

    def note(*_: object, max_seconds: float | None, **__: object) -> NoReturn:
        given.append(max_seconds)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mt.training.run.run_training", note)
        for text in ("90s", "45m", "3h50m", "1d2h", "99999d"):
            call("train", "-c", tiny_config_file, "--max-time", text)
    assert given == [90, 45 * 60, (3 * 60 + 50) * 60, 26 * 3600, 99_999 * 86_400]
    for text in ("soon", "90", "0s", "50m3h", "1.5h", "٣h", "100000d"):
        sentence = refuse("train", "-c", tiny_config_file, "--max-time", text)
        assert f"{text!r} is not a duration. Write it as 90s, 45m, 3h50m or 1d2h" in sentence


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_is_stopped_and_resumed_is_the_one_that_never_was(
    number: signal.Signals, succeed: Call, start: Start, tiny_config_file: Path
) -> None:
    options = ["--set", "training.max_steps=3000", "--set", "validation.every_steps=3000"]
    with start("train", "-c", tiny_config_file, *options) as process:
        metrics = RUN / "metrics.jsonl"
        while not metrics.exists() or not metrics.read_text():
            assert process.poll() is None
        process.send_signal(number)
        _, err = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    stopped_at = int(err.split("Stopped at step ")[1].split(",")[0])
    further = ["--set", f"training.max_steps={stopped_at + 5}"]
    succeed("train", "-c", tiny_config_file, *further)
    succeed("train", "-c", tiny_config_file, *further, "--run", "unbroken")
    assert_same_weights(f"step_{stopped_at + 5:07}", RUN, Path("unbroken"))
    assert trained_steps() == list(range(1, stopped_at + 6))


def test_a_bug_of_ours_asks_for_a_report_and_its_traceback_is_in_the_log(
    call: Call, refuse: Refuse, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
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
    call: Call, succeed: Call, tiny_config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeed("train", "-c", tiny_config_file, "--set", "training.max_steps=1")
    monkeypatch.setattr("mt.training.run.load_corpus", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    code, _, err = call("train", "-c", tiny_config_file, "--restart")
    assert (code, "The same command resumes the run." in err) == (143, True)
    assert not Path("runs/tiny.old-1").exists()


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal, the watcher's and the program's, of 24 lines and 100 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    yield ours, theirs
    for descriptor in (ours, theirs):
        with suppress(OSError):
            os.close(descriptor)


@pytest.fixture
def watched(tiny_config_file: Path, terminal: tuple[int, int]) -> Callable[..., subprocess.Popen[Any]]:
    """Starts `mt train` with its stderr on that terminal, perhaps by another program."""

    def begin(*options: str, by: tuple[str, ...] = ()) -> subprocess.Popen[Any]:
        command = [*by, sys.executable, "-m", "mt", "train", "--config", str(tiny_config_file), *options]
        process = subprocess.Popen(command, stderr=terminal[1], env=environment())
        os.close(terminal[1])
        return process

    return begin


@pytest.mark.slow
def test_a_terminal_that_is_closed(
    watched: Callable[..., subprocess.Popen[Any]], terminal: tuple[int, int], make_config: MakeConfig
) -> None:
    run_training(make_config(), "unbroken")
    with watched() as process:
        assert os.read(terminal[0], 1)
        os.close(terminal[0])
        assert process.wait(LONGEST_SECONDS) == 0
    # The run continues, and its log file has what nobody reads any more.
    assert_same_weights("step_0000012", RUN, Path("unbroken"))
    assert trained_steps() == list(range(1, 13))
    log = (RUN / "train.log").read_text()
    assert "validation at step 12: " in log
    assert "Finished: training.max_steps (12) reached, after 12 steps" in log


@pytest.mark.slow
def test_the_end_of_the_controlling_terminal_saves_and_exits(
    watched: Callable[..., subprocess.Popen[Any]], terminal: tuple[int, int]
) -> None:
    # A session leader's first terminal is its controlling one.
    leader = (
        "import os, sys; os.setsid(); os.open(os.ttyname(2), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
    )
    endless = ("training.max_steps=null", "validation.every_steps=100000", "training.max_epochs=100000")
    options = [word for option in endless for word in ("--set", option)]
    with watched(*options, by=(sys.executable, "-c", leader)) as process:
        reader = threading.Thread(target=_read_until, args=(terminal[0], b"best loss|epoch 2"), daemon=True)
        reader.start()
        reader.join(LONGEST_SECONDS)
        os.close(terminal[0])
        assert process.wait(LONGEST_SECONDS) == 128 + signal.SIGHUP
    assert "saved: SIGHUP." in (RUN / "train.log").read_text()
    assert list((RUN / "checkpoints").glob("step_*"))


def _read_until(descriptor: int, words: bytes) -> None:
    shown = b""
    while not any(word in shown for word in words.split(b"|")):
        shown += os.read(descriptor, 1000)


TITLE = "\x1b]0;owned\x07"
MARKUP = "<script>alert(1)</script> <img src=x onerror=alert(1)> | **bold**"


def test_neither_log_nor_terminal_nor_tensorboard_obeys_a_sentence(
    succeed: Call, tiny_corpus: Path, tiny_config_file: Path, read_curves: Callable[[Path], Any]
) -> None:
    shutil.copytree(tiny_corpus, "hostile")
    for language in ("en", "de"):
        file = Path(f"hostile/validation.{language}")
        file.write_text(f"{TITLE}{MARKUP} \u202e {language}\n{file.read_text()}")
    options = ("--set", "data.path=hostile", "--set", "training.max_steps=2")
    err = succeed("train", "-c", tiny_config_file, *options).err
    sample = read_curves(RUN / "tensorboard")["validation/samples/text_summary"][0][1].decode()
    log = (RUN / "train.log").read_text()
    for text in (err, log, sample):
        assert {character for character in text if not character.isprintable()} <= {"\n", "\t"}
        assert sample is text or rf"\x1b]0;owned\x07{MARKUP} \u202e en" in text
    # The sentence is in the first cell of its row, and no cell is added by what is in it.
    shown = markdown_to_safe_html(sample)
    assert {len(row.split("<td>")) for row in shown.split("<tr>")[2:]} == {4}
    assert set(re.findall(r"<(\w+)", shown)) <= {"table", "thead", "tbody", "tr", "th", "td", "strong"}
    [first_cell, *_] = re.findall(r"<td>(.*?)</td>", shown)
    assert html.unescape(first_cell) == rf"\x1b]0;owned\x07{MARKUP} \u202e en"
