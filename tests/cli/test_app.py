"""What `mt` says of itself, and how soon."""

import errno
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import typer.main

import mt
from mt.__main__ import main
from mt.cli.app import app
from mt.run_directory import RunDirectory
from tests.forked import Popen

Start = Callable[..., Popen]


def imported(importtime: str) -> set[str]:
    """The top-level packages named in what ``python -X importtime`` wrote."""
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in importtime.splitlines() if "|" in line}


COMMANDS = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(command: str, call: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = call(command, "--help")
    assert (code, err) == (0, "")
    assert re.search(rf"Usage: .*mt {command} \[OPTIONS\]", out)
    assert command in call("--help")[1]


def test_without_anything_it_helps(call: Callable[..., tuple[int, str, str]]) -> None:
    assert "Usage: " in "".join(call()[1:])


def test_version(call: Callable[..., tuple[int, str, str]]) -> None:
    assert call("--version") == (0, f"mt {mt.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trian"], "No such command 'trian'"),
        (["train"], "Missing option '--config'"),
        (["train", "--config"], "Option '--config' requires an argument"),
        (["translate", "--tempo", "3"], "No such option: --tempo"),
    ],
)
def test_wrong_usage(arguments: list[str], says: str, call: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert says in err


def test_who_is_refused_does_not_wait_for_torch(start: Start, tiny_config_file: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with run.lock():
        arguments = ("train", "--config", str(tiny_config_file), "--run", str(run.path))
        _, err = start(*arguments, python=("-X", "importtime")).communicate()
    assert f"is in use by process {os.getpid()}" in err
    assert not {"torch", "datasets", "tokenizers", "tensorboard"} & imported(err)


@pytest.mark.parametrize(
    ("error", "is_shown"), [(OSError(errno.ENOSPC, "No space left"), False), (ValueError(), True)]
)
def test_a_disk_that_is_full_in_a_writing_thread_is_one_sentence(
    error: Exception, is_shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)

    def fail() -> None:
        raise error

    def app(prog_name: str) -> None:
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr("mt.__main__.app", app)
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert said.endswith("mt: No space left.\n")
    assert ("Traceback" in said) == is_shown
