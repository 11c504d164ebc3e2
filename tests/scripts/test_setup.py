"""scripts/setup installs what is pinned, hashes checked; scripts/test runs as a lesser processor would."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Makes an environment as `python -m venv` does, with itself as its python, and records what else is asked.
PYTHON = """\
#!/usr/bin/env bash
if [ "$1 $2" = "-m venv" ]; then
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
    echo "VIRTUAL_ENV='$3' PATH='$3/bin':\\$PATH" >"$3/bin/activate"
elif [ "$1" = "-m" ]; then
    echo "$0" "${@//\\/dev\\/fd\\/*/FILE}" >>"$LOG"
    for word in "$@"; do case "$word" in /dev/fd/*) cat "$word" >>"$LOG" ;; esac; done
    exit "${CODE:-0}"
fi
"""


def pinned() -> dict[str, dict[str, str]]:
    """Of each section of constraints.txt the lines of each package, by its normalised name."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    sections: dict[str, dict[str, str]] = {}
    for section, body in re.findall(r"^# \[(\w+)\]\n(.*?)(?=^# \[|\Z)", text, re.MULTILINE | re.DOTALL):
        lines = [line for line in body.splitlines() if line and not line.startswith("#")]
        sections[section] = {canonicalize_name(line.split("==")[0]): line for line in lines}
    return sections


def test_every_package_but_torch_is_pinned_with_hashes_as_the_project_takes_it() -> None:
    sections = pinned()
    needed = {"run": [*PROJECT["dependencies"], "hatchling", "editables"], **PROJECT["optional-dependencies"]}
    for section, requirements in needed.items():
        lines = sections["translate"] | sections["run"] | sections["torch"] | sections.get(section, {})
        for requirement in map(Requirement, requirements):
            version = lines[canonicalize_name(requirement.name)].split()[0].split("==")[1]
            assert Version(version) in requirement.specifier, requirement
    assert list(sections.pop("torch")) == ["torch"]
    for lines in sections.values():
        for line in lines.values():
            assert re.fullmatch(r"[\w.-]+==\S+( ;.*)?( +--hash=sha256:[0-9a-f]{64})+", line), line[:80]


@pytest.mark.parametrize("section", ["translate", "run", "dev", "pictures", "notebook", "transformers"])
def test_what_the_pinned_packages_need_is_pinned(section: str) -> None:
    sections = pinned()
    there = {**sections["translate"], **sections["torch"], **sections["run"], **sections[section]}
    if section == "translate":
        there = {**sections["translate"], "huggingface-hub": "declared by tokenizers, and not imported"}
    for name in sections[section]:
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:  # Of another platform, or of an extra that is not installed here.
            continue
        for requirement in map(Requirement, requirements):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in there, f"{name} needs {requirement}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of nothing but what scripts/setup reads, and a python that only records."""
    (tmp_path / "mt" / "scripts").mkdir(parents=True)
    for file in ("scripts/setup", "scripts/environment", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / file, tmp_path / "mt" / file)
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path / "mt"


def set_up(
    checkout: Path, extras: str = "", **environment: str | Path
) -> tuple[int, list[str], set[str], str]:
    """The exit code, what python was asked for, the environments that were installed into, and stderr."""
    log = checkout.parent / "log"
    log.write_text("")
    outside = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "MT_VENV")}
    given = {"PYTHON": checkout.parent / "python", "LOG": log, **environment}
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; source scripts/setup '{extras}'; echo $VIRTUAL_ENV"],
        cwd=checkout,
        env=outside | {key: str(value) for key, value in given.items()},
        capture_output=True,
        text=True,
    )
    lines = log.read_text().splitlines()
    installed = {line.split("/bin/python ")[0] for line in lines if "/bin/python -m pip install" in line}
    return done.returncode, lines, installed, done.stderr


def test_the_hashes_are_checked_and_torch_comes_last_of_the_packages(checkout: Path) -> None:
    code, log, _, err = set_up(checkout, "[dev]")
    assert code == 0, err
    installs = [line.split(" --disable-pip-version-check ")[1] for line in log if " pip " in line]
    assert installs == ["--require-hashes -r FILE", "-r FILE", "--no-deps --no-build-isolation -e ."]
    packages = [line.split("==")[0] for line in log if "==" in line]
    assert {"numpy", "pytest"} < set(packages)
    assert packages[-1] == "torch"


def test_an_active_environment_of_something_else_is_left_alone(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    code, _, installed, err = set_up(checkout, VIRTUAL_ENV=other)
    assert (code, installed) == (0, {str(checkout / ".venv")})
    assert list(other.rglob("*")) == [other / "bin"]
    assert f"MT_VENV={other} " in err
    code, _, installed, _ = set_up(checkout, MT_VENV=tmp_path / "named")
    assert (code, installed) == (0, {str(tmp_path / "named")})


def test_a_folder_that_is_not_an_environment_is_not_made_one(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").touch()
    code, log, _, err = set_up(checkout, MT_VENV=tmp_path / "photos")
    assert (code, log) == (2, [])
    assert "photos is not a virtual environment" in err
    assert [file.name for file in (tmp_path / "photos").iterdir()] == ["1.jpg"]


def test_it_installs_again_when_it_was_left_half_made_or_versions_change(checkout: Path) -> None:
    # What `python -m venv` leaves behind where it cannot install pip.
    environment = checkout / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").touch()
    shutil.copy(checkout.parent / "python", environment / "bin" / "python")
    assert set_up(checkout)[2] == {str(environment)}
    assert set_up(checkout)[2] == set()
    stamp = environment / ".mt-installed"
    files = [checkout / name for name in ("pyproject.toml", "constraints.txt")]
    for changed in files:
        # Newer than what is installed, and the other file older.
        for seconds, path in ((1, files[0]), (1, files[1]), (2, stamp), (3, changed)):
            os.utime(path, (seconds, seconds))
        assert set_up(checkout)[2] == {str(environment)}


def test_extras_are_words_and_a_copy_in_place_of_the_checkout_is_noticed(checkout: Path) -> None:
    unknown = set_up(checkout, "picture")
    assert (unknown[0], "no extra 'picture'" in unknown[3]) == (2, True)
    assert set_up(checkout, "pictures serve")[0] == 0
    assert (checkout / ".venv/.mt-installed[pictures][serve]").exists()
    copy = checkout / ".venv/lib/python3.12/site-packages/mt"
    copy.mkdir(parents=True)
    code, log, _, err = set_up(checkout, "pictures serve")
    assert (code, log[-1].endswith(" -e ."), f"{copy} is a copy of mt" in err) == (0, True, True)


@pytest.mark.parametrize(
    ("arguments", "code", "end"),
    [
        (["--all", "--as", "avx2", "tests/search"], 0, "python avx2 AVX2 -m pytest -n auto {} tests/search"),
        (["--as", "baseline"], 0, "python default GENERIC -m pytest -n auto {} -m not slow"),
        (["--as", "zen"], 2, "scripts/test --as takes baseline, avx2 or avx512."),
    ],
)
def test_a_lesser_processor_can_be_asked_for(
    arguments: list[str], code: int, end: str, tmp_path: Path
) -> None:
    """The set-up does nothing, and each program prints what it sees."""
    scripts, programs = tmp_path / "scripts", tmp_path / "bin"
    for folder in scripts, programs:
        folder.mkdir()
    shutil.copy(ROOT / "scripts/test", scripts)
    (scripts / "setup").touch()
    for name in ("ruff", "mypy", "python"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho {name} "$ATEN_CPU_CAPABILITY" "$CT2_FORCE_CPU_ISA" "$@"\n')
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = ["bash", str(scripts / "test"), *arguments]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, end.format("--dist worksteal"))
