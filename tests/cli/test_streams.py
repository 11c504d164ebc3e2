"""The standard streams in this process: what they drop, what they escape, and what they pass on."""

import io
import os
import pty
import sys
import termios
from pathlib import Path

import pytest

from mt.cli import logs
from mt.cli.logs import escape_on_terminal, survive_losing_stderr


@pytest.fixture(autouse=True)
def _streams_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, "stdout", sys.stdout)


def on(descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this descriptor be what the module takes for stderr."""
    monkeypatch.setattr(logs, "STDERR", descriptor)
    for name in ("stderr", "__stderr__"):
        monkeypatch.setattr(sys, name, None)


def test_a_pipe_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    on(theirs, monkeypatch)
    survive_losing_stderr()
    print("heard", file=sys.stderr)
    assert os.read(ours, 100) == b"heard\n"
    os.close(ours)
    for _ in range(3):
        print("x" * 100_000, file=sys.stderr, flush=True)
    os.close(theirs)
    print("even then", file=sys.stderr, flush=True)


def test_a_pipe_that_is_full_and_must_not_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    on(theirs, monkeypatch)
    survive_losing_stderr()
    for _ in range(3):
        print("x" * 1_000_000, file=sys.stderr, flush=True)
    os.close(ours)
    os.close(theirs)


def test_any_text_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    on(theirs, monkeypatch)
    survive_losing_stderr()
    print("ä \udcff", file=sys.stderr)
    assert os.read(ours, 100) == "ä \\udcff\n".encode()
    os.close(ours)
    os.close(theirs)


def test_a_terminal_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.FileIO(theirs, "w", closefd=False)))
    escape_on_terminal()
    # The last one is a byte of a line that is not UTF-8, which `mt translate --on-error copy` writes.
    print("\x1b]0;owned\x07ä\ttab \x9b31m \u202etxt caf\udce9")
    assert os.read(ours, 1000).decode() == "\\x1b]0;owned\\x07ä\ttab \\x9b31m \\u202etxt caf\\udce9\n"
    os.close(ours)
    os.close(theirs)


def test_a_file_gets_every_byte(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="utf-8") as out:
        monkeypatch.setattr(sys, "stdout", out)
        escape_on_terminal()
        print("\x1b[31m")
    assert (tmp_path / "out").read_bytes() == b"\x1b[31m\n"
