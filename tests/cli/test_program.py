"""What `mt` says of itself, wrong usage, recipes, the standard streams, and errors that end a command."""

import errno
import re
from pathlib import Path
from typing import NoReturn

import pytest
import typer.main

import mt
from mt.cli.app import app
from mt.config.load import load_config
from tests.fixture_types import Call

COMMANDS = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
ROOT = Path(mt.__file__).parent.parent


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(command, "--help")
    assert (code, err) == (0, "")
    assert re.search(rf"Usage: .*mt {command} \[OPTIONS\]", out)
    assert command in call("--help")[1]


def test_version_and_help_without_arguments(call: Call) -> None:
    assert call("-V") == call("--version") == (0, f"mt {mt.__version__}\n", "")
    assert "Usage: " in "".join(call()[1:])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("trian", "No such command 'trian'"),
        ("train", "Missing option '--config'"),
        ("train --config", "Option '--config' requires an argument"),
        ("translate --beams 3 Hello", "--beam"),
        ("evaluate --split dev", "'validation'"),
        ("evaluate runs/x", "unexpected extra argument"),
        ("init --data x --init-from @best", "--init-from @best names no run"),
    ],
)
def test_wrong_usage_is_explained(arguments: str, says: str, call: Call) -> None:
    code, out, err = call(*arguments.split())
    assert (code, out) == (2, "")
    assert says in err


def test_recipes_are_listed_and_printed(call: Call) -> None:
    code, out, _ = call("init", "--recipe", "list")
    assert code == 0
    recipes = sorted((ROOT / "configs").glob("*.yaml"))
    assert sorted(out.splitlines()) == sorted(file.stem for file in recipes)
    for recipe in recipes:
        assert call("init", "--recipe", recipe.stem) == (0, recipe.read_text(encoding="utf-8"), "")
    code, out, err = call("init", "--recipe", "nope")
    assert (code, out) == (2, "")
    assert "no recipe 'nope'" in err


def test_newcomers_are_sent_to_a_recipe(call: Call) -> None:
    for command in (("translate", "Hello"), ("translate", "--run", "nowhere", "Hello")):
        code, _, err = call(*command)
        assert code == 2
        assert "mt init --recipe quickstart > quickstart.yaml; mt train --config quickstart.yaml" in err
    code, _, err = call("train", "--config", "configs/quickstart.yaml")
    assert code == 2
    assert "mt init --recipe quickstart > quickstart.yaml" in err
    Path("quickstart.yaml").write_text(call("init", "--recipe", "quickstart")[1])
    assert load_config(Path("quickstart.yaml")).data.path == "builtin:primer"


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("mt.__main__.app", fail)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (MemoryError(), 1, "no memory left"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, "no memory left"),
        (ImportError("libtorch_cpu.so: failed to map segment"), 1, "no memory left"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "no memory left"),
        (OSError(errno.ENOSPC, "No space left", "a\x1b]0;b"), 2, r"a\x1b]0;b: No space left."),
        (ZeroDivisionError("by\nzero"), 1, "a bug in mt: ZeroDivisionError: by zero. Please report it"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "odd"), 1, "MT_DEBUG=1 shows"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_line(
    error: BaseException, code: int, says: str, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    fail_with(error, monkeypatch)
    ended = call()
    assert ended[:2] == (code, "")
    assert ended[2].count("\n") == (1 if says else 0)
    assert says in ended[2]
