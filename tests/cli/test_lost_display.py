"""Whoever watches a run may go: the run continues, and its log file has what nobody reads any more."""

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from mt.run_directory import RunDirectory
from mt.training.run import run_training
from tests.fixture_types import MakeConfig
from tests.processes import environment

LONGEST_SECONDS = 120
RUN = Path("runs/tiny")


@pytest.fixture
def command(tiny_config_file: Path) -> list[str]:
    return [sys.executable, "-m", "mt", "train", "--config", str(tiny_config_file)]


@pytest.fixture(scope="module")
def unbroken(make_config: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("unbroken"))
    run_training(make_config(), run)
    return run


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal, the watcher's and the program's, of 24 lines and 100 columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    yield ours, theirs
    for descriptor in (ours, theirs):
        try:
            os.close(descriptor)
        except OSError:
            continue


def assert_nothing_was_lost(unbroken: RunDirectory) -> None:
    ours, theirs = (
        load_file(path / "checkpoints/step_0000012/model.safetensors") for path in (RUN, unbroken.path)
    )
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    lines = map(json.loads, (RUN / "metrics.jsonl").read_text().splitlines())
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 13))
    log = (RUN / "train.log").read_text()
    assert "validation at step 12: " in log
    assert "Finished: training.max_steps (12) reached, after 12 steps" in log


@pytest.mark.slow
def test_a_terminal_that_is_closed(
    command: list[str], unbroken: RunDirectory, terminal: tuple[int, int]
) -> None:
    ours, theirs = terminal
    with subprocess.Popen(command, stderr=theirs, env=environment()) as process:
        os.close(theirs)
        assert os.read(ours, 1)
        os.close(ours)
        assert process.wait(LONGEST_SECONDS) == 0
    assert_nothing_was_lost(unbroken)


@pytest.mark.slow
def test_the_end_of_the_controlling_terminal_saves_and_exits(
    command: list[str], terminal: tuple[int, int]
) -> None:
    ours, theirs = terminal
    # A session leader's first terminal is its controlling one.
    leader = (
        "import os, sys; os.setsid(); os.open(os.ttyname(2), os.O_RDWR); os.execv(sys.argv[1], sys.argv[1:])"
    )
    endless = ["--set", "training.max_steps=null", "--set", "validation.every_steps=100000"]
    started = [sys.executable, "-c", leader, *command, *endless, "--set", "training.max_epochs=100000"]
    with subprocess.Popen(started, stderr=theirs, env=environment()) as process:
        os.close(theirs)
        reader = threading.Thread(target=_read_until, args=(ours, b"best loss|epoch 2"), daemon=True)
        reader.start()
        reader.join(LONGEST_SECONDS)
        os.close(ours)
        assert process.wait(LONGEST_SECONDS) == 128 + signal.SIGHUP
    assert "saved: SIGHUP." in (RUN / "train.log").read_text()
    assert list((RUN / "checkpoints").glob("step_*"))


def _read_until(descriptor: int, words: bytes) -> None:
    shown = b""
    while not any(word in shown for word in words.split(b"|")):
        shown += os.read(descriptor, 1000)
