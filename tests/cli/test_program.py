"""What `mt` says of itself, wrong usage, recipes, completion, and errors that end a command."""

import errno
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import typer.main

import mt
from mt.cli.app import app
from mt.config.load import load_config
from tests.fixture_types import Call, Refuse

COMMANDS = list(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
ROOT = Path(mt.__file__).parent.parent


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, succeed: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, err = succeed(command, "--help")
    assert err == ""
    assert re.search(rf"Usage: .*mt {command} \[OPTIONS\]", out)
    assert command in succeed("-h").out
    # A list keeps its lines.
    exit_codes = re.findall(r"^ *(\d+)  [a-z]", out, re.MULTILINE)
    expected = {"train": ["0", "1", "2", "75", "129", "130", "138", "143"], "check": ["0", "2", "130"]}
    assert exit_codes == expected.get(command, [])


def test_version_and_help_without_arguments(call: Call) -> None:
    assert call("-V") == call("--version") == (0, f"mt {mt.__version__}\n", "")
    assert "Usage: " in "".join(call()[1:])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("trian", "No such command 'trian'"),
        ("train", "Missing option '--config' / '-c' (see mt train --help)."),
        ("train --config", "Option '--config' requires an argument (see mt --help)."),
        ("translate --beams 3 Hello", "--beam"),
        ("evaluate --split dev", "'validation'"),
        ("evaluate runs/x", "unexpected extra argument"),
        ("init --data x --init-from @best", "--init-from @best names no run"),
    ],
)
def test_wrong_usage_is_explained(arguments: str, says: str, refuse: Refuse) -> None:
    assert says in refuse(*arguments.split())


def test_recipes_are_listed_and_printed(call: Call, refuse: Refuse) -> None:
    recipes = sorted((ROOT / "configs").glob("*.yaml"))
    assert sorted(call("init", "--recipe", "list").out.splitlines()) == sorted(file.stem for file in recipes)
    for recipe in recipes:
        assert call("init", "--recipe", recipe.stem) == (0, recipe.read_text(encoding="utf-8"), "")
    assert "no recipe 'nope'" in refuse("init", "--recipe", "nope")
    for more in ("--data x", "--minutes 1", "--output x.yaml", "--init-from x"):
        assert "give no other option with it" in refuse("init", "--recipe", "quickstart", *more.split())
    sentence = refuse("train", "--config", "configs/quickstart.yaml")
    assert "mt init --recipe quickstart > quickstart.yaml" in sentence
    Path("quickstart.yaml").write_text(call("init", "--recipe", "quickstart").out)
    assert load_config(Path("quickstart.yaml")).data.path == "builtin:primer"


def fail_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr("mt.__main__.app", fail)


def missing(package: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"No module named {package!r}", name=package)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (MemoryError(), 1, "no memory left"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, "no memory left"),
        (ImportError("libtorch_cpu.so: failed to map segment"), 1, "no memory left"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "no memory left"),
        (OSError(errno.ENOSPC, "No space left", "a\x1b]0;b"), 2, r"mt: a\x1b]0;b: No space left."),
        (OSError(errno.ENOSPC, "No space left"), 2, "mt: No space left."),
        (OSError("odd"), 2, "mt: odd."),
        (missing("datasets"), 2, "this needs datasets, which is not installed here"),
        (missing("huggingface_hub"), 2, "this needs huggingface_hub, which is not installed here"),
        (missing("mt.nothing"), 1, "a bug in mt: ModuleNotFoundError"),
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
    assert ended.err.count("\n") == (1 if says else 0)
    assert says in ended.err


def test_with_mt_debug_an_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setenv("MT_DEBUG", "1")
    fail_with(ZeroDivisionError("by zero"), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        call()


@pytest.fixture
def complete(succeed: Call, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """What bash is offered for the last word of a command line, where there are two runs.

    Beside them are a folder that is none, and a run whose name a shell would take for more than a name.
    """
    for name in ("en-de", "de-en", "$(touch pwned)"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "config.yaml").touch()
    Path("runs/notes").mkdir()

    def run(line: str) -> list[str]:
        monkeypatch.setenv("_MT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        _, out, err = succeed()
        assert err == ""
        return out.split()

    return run


def test_commands_flags_choices_and_runs_are_completed(complete: Callable[[str], list[str]]) -> None:
    assert complete("mt tr") == ["train", "translate"]
    assert {"init", "check", "train", "translate", "schema"} <= set(complete("mt "))
    assert complete("mt translate --ens") == ["--ensemble"]
    assert complete("mt translate --length-normalization ") == ["gnmt", "mean"]
    for before in ("translate --run", "translate --ensemble", "attention --run", "serve --run", "show"):
        assert complete(f"mt {before} ") == ["runs/de-en", "runs/en-de"]
        assert complete(f"mt {before} runs/e") == ["runs/en-de"]
        # Nothing, so that the shell completes the names of files.
        assert complete(f"mt {before} elsewhere/") == []
