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


def set_up(checkout: Path, extras: str = "", **environment: Path) -> tuple[int, list[str], str]:
    """The exit code, what python was asked for, and stderr."""
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
    return done.returncode, log.read_text().splitlines(), done.stderr


def test_setup_installs_what_is_pinned_where_it_is_told_to_and_once(checkout: Path, tmp_path: Path) -> None:
    def installed_into(extras: str = "", **environment: Path) -> set[str]:
        code, log, err = set_up(checkout, extras, **environment)
        assert code == 0, err
        return {line.split("/bin/python ")[0] for line in log if "/bin/python -m pip install" in line}

    own = checkout / ".venv"
    # What `python -m venv` leaves behind where it cannot install pip: it is made again.
    (own / "bin").mkdir(parents=True)
    (own / "pyvenv.cfg").touch()
    code, log, _ = set_up(checkout, "[dev]")
    assert code == 0
    installs = [line.split(" --disable-pip-version-check ")[1] for line in log if " pip " in line]
    assert installs == ["--require-hashes -r FILE", "-r FILE", "--no-deps --no-build-isolation -e ."]
    packages = [line.split("==")[0] for line in log if "==" in line]
    assert {"numpy", "pytest"} < set(packages)
    assert packages[-1] == "torch"
    assert [installed_into("[dev]"), installed_into("pictures serve")] == [set(), {str(own)}]
    # Each file in turn is newer than what is installed, and the other one older.
    stamp, files = own / ".mt-installed[dev]", [checkout / "pyproject.toml", checkout / "constraints.txt"]
    for changed in files:
        for seconds, path in ((1, files[0]), (1, files[1]), (2, stamp), (3, changed)):
            os.utime(path, (seconds, seconds))
        assert installed_into("[dev]") == {str(own)}
    copy = own / "lib/python3.12/site-packages/mt"
    copy.mkdir(parents=True)
    code, log, err = set_up(checkout, "[dev]")
    assert (code, log[-1].endswith(" -e ."), f"{copy} is a copy of mt" in err) == (0, True, True)
    # An active environment is of something else, unless it is named.
    (tmp_path / "other").mkdir()
    assert installed_into("serve", VIRTUAL_ENV=tmp_path / "other") == {str(own)}
    assert f"MT_VENV={tmp_path / 'other'} " in set_up(checkout, VIRTUAL_ENV=tmp_path / "other")[2]
    assert installed_into(MT_VENV=tmp_path / "other") == {str(tmp_path / "other")}


def test_setup_refuses_an_unknown_extra_and_a_folder_that_is_not_an_environment(checkout: Path) -> None:
    code, _, err = set_up(checkout, "picture")
    assert (code, "no extra 'picture'" in err) == (2, True)
    photos = checkout.parent / "photos"
    photos.mkdir()
    (photos / "1.jpg").touch()
    code, log, err = set_up(checkout, MT_VENV=photos)
    assert (code, log, "photos is not a virtual environment" in err) == (2, [], True)
    assert [file.name for file in photos.iterdir()] == ["1.jpg"]


@pytest.mark.parametrize(
    ("arguments", "code", "end"),
    [
        ("--all --as avx2 tests/search", 0, "python avx2 AVX2 -m pytest -n auto {} tests/search"),
        ("--as baseline", 0, "python default GENERIC -m pytest -n auto {} -m not slow"),
        ("--as zen", 2, "scripts/test --as takes baseline, avx2 or avx512."),
    ],
)
def test_a_lesser_processor_can_be_asked_for(arguments: str, code: int, end: str, tmp_path: Path) -> None:
    """The set-up does nothing, and each program prints what it sees."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/test", tmp_path / "scripts")
    (tmp_path / "scripts/setup").touch()
    for name in ("ruff", "mypy", "python"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$ATEN_CPU_CAPABILITY" "$CT2_FORCE_CPU_ISA" "$@"\n')
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["bash", str(tmp_path / "scripts/test"), *arguments.split()]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, end.format("--dist worksteal"))
