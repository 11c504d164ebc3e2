"""Completion in the shell: what is completed, how soon, and that bash itself takes it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixture_types import Call

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
