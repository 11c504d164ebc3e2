"""scripts/test makes every check, with all extras installed, and fails if one of the checks does."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CHECKS = ["ruff format --check .", "ruff check .", "mypy", "python -m pytest -n auto -m not slow"]

# Records how it is called, and fails if that is the call in $FAILS.
PROGRAM = """\
#!/bin/sh
called="$(basename "$0")${1:+ $*}"
echo "$called" >>log
[ "$called" != "$FAILS" ]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The script, beside programs that only record how they are called."""
    for folder in ("scripts", "bin"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "scripts" / "test", tmp_path / "scripts")
    (tmp_path / "scripts" / "setup").write_text('echo "setup $1" >>log\nPATH="$PWD/bin:$PATH"\n')
    for name in ("ruff", "mypy", "python"):
        (tmp_path / "bin" / name).write_text(PROGRAM)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def check(checkout: Path, *arguments: str, fails: str = "") -> tuple[int, list[str]]:
    """The exit code of scripts/test, and the commands that it has run."""
    (checkout / "log").write_text("")
    ended = subprocess.run(
        [checkout / "scripts" / "test", *arguments], env={**os.environ, "FAILS": fails}, check=False
    )
    return ended.returncode, (checkout / "log").read_text().splitlines()


def test_all_checks_are_made_with_all_extras(checkout: Path) -> None:
    code, (installed, *checks) = check(checkout)
    assert (code, checks) == (0, CHECKS)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # A test that needs another extra would be skipped.
    assert set(re.findall(r"\[(\w+)\]", installed)) == set(project["optional-dependencies"])


def test_the_slow_tests_are_run_on_request(checkout: Path) -> None:
    code, (_, *checks) = check(checkout, "--all", "-k", "beam")
    assert (code, checks) == (0, [*CHECKS[:-1], "python -m pytest -n auto -k beam"])


@pytest.mark.parametrize("fails", CHECKS)
def test_a_check_that_fails_is_the_last_and_makes_it_fail(fails: str, checkout: Path) -> None:
    code, commands = check(checkout, fails=fails)
    assert (code, commands[-1]) == (1, fails)
