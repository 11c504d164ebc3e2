"""Completion in the shell: what is completed, how soon, and that bash itself takes it."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mt
from mt.config.explain import SECTIONS
from mt.config.load import recipe_files

Call = Callable[..., tuple[int, str, str]]
Complete = Callable[[str], list[str]]


@pytest.fixture
def runs() -> None:
    """Two runs, a folder that is none, and one whose name a shell would take for more than a name."""
    for name in ("en-de", "de-en", "$(touch pwned)"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "config.yaml").touch()
    Path("runs/notes").mkdir()


@pytest.fixture
def complete(call: Call, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """What bash is offered for the last word of a command line that begins with ``mt``."""

    def run(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_MT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        code, out, err = call()
        assert (code, err) == (0, "")
        return out.split()

    return run


@pytest.mark.usefixtures("runs")
def test_commands_flags_and_choices(complete: Complete) -> None:
    assert complete("mt tr") == ["train", "translate"]
    assert {"init", "check", "train", "translate", "schema"} <= set(complete("mt "))
    assert complete("mt translate --ens") == ["--ensemble"]
    assert complete("mt translate --length-normalization ") == ["gnmt", "mean"]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("before", ["translate --run", "translate --ensemble", "attention --run", "show"])
def test_runs(before: str, complete: Complete) -> None:
    assert complete(f"mt {before} ") == ["runs/de-en", "runs/en-de"]
    assert complete(f"mt {before} runs/e") == ["runs/en-de"]
    # Nothing, so that the shell completes the names of files.
    assert complete(f"mt {before} elsewhere/") == []


def test_recipes_and_options(complete: Complete) -> None:
    assert complete("mt init --recipe ") == list(recipe_files())
    assert complete("mt init --recipe quick") == ["quickstart"]
    assert complete("mt config sched") == ["schedule", *(f"schedule.{key}" for key in SECTIONS["schedule"])]


@pytest.mark.usefixtures("runs")
def test_bash_takes_what_is_installed(tmp_path: Path) -> None:
    # `mt` on the path, as pip installs it; the home is empty.
    program = tmp_path / "bin" / "mt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mt "$@"\n')
    program.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("# mine\n")
    environment = {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(mt.__file__).parent.parent),
    }

    def bash(script: str) -> str:
        done = subprocess.run(
            ["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    # The second command keeps bash from becoming mt, which asks for its parent.
    said = bash("mt --install-completion; true")
    assert "bash completion installed in" in said
    assert (home / ".bashrc").read_text().startswith("# mine\n")
    offered = bash(
        "source ~/.bashrc; complete -p mt; COMP_WORDS=(mt translate --run runs/); COMP_CWORD=3;"
        '_mt_completion mt; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    registered, *words = offered.splitlines()
    assert registered.endswith("-F _mt_completion mt")
    assert words == ["runs/de-en", "runs/en-de"]
    assert not Path("pwned").exists()
