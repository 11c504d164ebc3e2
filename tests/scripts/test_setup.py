"""scripts/setup installs what constraints.txt pins, hashes checked, into the project's own environment."""

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


def test_every_package_but_torch_is_pinned_with_hashes() -> None:
    sections = pinned()
    assert list(sections) == ["torch", "translate", "run", "dev", "pictures", "opus", "transformers", "cuda"]
    assert list(sections.pop("torch")) == ["torch"]
    for lines in sections.values():
        for line in lines.values():
            assert re.fullmatch(r"[\w.-]+==\S+( ;.*)?( +--hash=sha256:[0-9a-f]{64})+", line), line[:80]


def test_what_is_pinned_is_what_the_project_takes() -> None:
    sections = pinned()
    needed = {"run": [*PROJECT["dependencies"], "hatchling", "editables"], **PROJECT["optional-dependencies"]}
    for section, requirements in needed.items():
        lines = sections["translate"] | sections["run"] | sections["torch"] | sections.get(section, {})
        for requirement in map(Requirement, requirements):
            version = lines[canonicalize_name(requirement.name)].split()[0].split("==")[1]
            assert Version(version) in requirement.specifier, requirement


@pytest.mark.parametrize("section", ["translate", "run", "dev", "pictures", "transformers"])
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


def test_torch_has_a_range_that_holds_what_was_tested() -> None:
    ranges = [Requirement(each) for each in PROJECT["dependencies"] if each.startswith("torch")]
    (line,) = pinned()["torch"].values()
    tested = Version(line.split("==")[1])
    for platform, oldest in (("linux", "2.11"), ("darwin", "2.13.0")):
        [torch] = [
            each for each in ranges if each.marker and each.marker.evaluate({"sys_platform": platform})
        ]
        assert tested in torch.specifier
        assert Version(f"{tested.major}.{tested.minor + 1}") not in torch.specifier
        assert next(torch.specifier.filter(["2.10", "2.11", "2.12", "2.13.0"])) == oldest


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
    checkout: Path, extras: str = "", *, called_in: Path | None = None, **environment: str | Path
) -> tuple[int, list[str], str]:
    """The exit code, what python was asked for, and stderr."""
    log = checkout.parent / "log"
    log.write_text("")
    script = f"set -euo pipefail; cd {checkout}; source scripts/setup '{extras}'; echo $VIRTUAL_ENV"
    outside = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "MT_VENV")}
    given = {"PYTHON": checkout.parent / "python", "LOG": log, **environment}
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=called_in or checkout,
        env=outside | {key: str(value) for key, value in given.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, log.read_text().splitlines(), done.stderr


def environments(log: list[str]) -> set[str]:
    return {line.split("/bin/python ")[0] for line in log if "/bin/python -m pip install" in line}


def test_the_hashes_are_checked_and_torch_comes_last_of_the_packages(checkout: Path) -> None:
    code, log, err = set_up(checkout, "[dev]")
    assert code == 0, err
    calls = [
        (i, line.split(" --disable-pip-version-check ")[1]) for i, line in enumerate(log) if " pip " in line
    ]
    assert [call for _, call in calls] == [
        "--require-hashes -r FILE",
        "-r FILE",
        "--no-deps --no-build-isolation -e .",
    ]
    (first, _), (second, _), (third, _) = calls
    hashed = {line.split("==")[0] for line in log[first:second] if "==" in line}
    assert {"numpy", "ctranslate2", "hatchling", "pytest"} <= hashed
    assert not {"torch", "matplotlib"} & hashed
    assert [line for line in log[second + 1 : third] if not line.startswith("#")] == ["torch==2.13.0", ""]
    assert "GB" in err
    assert "minutes" in err


def test_an_active_environment_of_something_else_is_left_alone(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    code, log, err = set_up(checkout, VIRTUAL_ENV=other)
    assert (code, environments(log)) == (0, {str(checkout / ".venv")})
    assert list(other.rglob("*")) == [other / "bin"]
    assert f"leaving the active environment as it is; MT_VENV={other} " in err
    code, log, err = set_up(checkout, VIRTUAL_ENV=checkout / ".venv")
    assert (code, log, err) == (0, [], "")


def test_another_environment_can_be_named(checkout: Path, tmp_path: Path) -> None:
    code, log, _ = set_up(checkout, MT_VENV=tmp_path / "named")
    assert (code, environments(log)) == (0, {str(tmp_path / "named")})
    assert not (checkout / ".venv").exists()
    assert set_up(checkout, MT_VENV=tmp_path / "named")[:2] == (0, [])


def test_a_folder_that_is_not_an_environment_is_not_made_one(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "1.jpg").touch()
    code, log, err = set_up(checkout, MT_VENV=tmp_path / "photos")
    assert (code, log) == (2, [])
    assert "photos is not a virtual environment" in err
    assert [file.name for file in (tmp_path / "photos").iterdir()] == ["1.jpg"]


@pytest.mark.parametrize("is_named", [False, True])
def test_an_environment_that_was_left_half_made_is_made_again(
    is_named: bool, checkout: Path, tmp_path: Path
) -> None:
    # What `python -m venv` leaves behind where it cannot install pip.
    environment = tmp_path / "named" if is_named else checkout / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").touch()
    shutil.copy(tmp_path / "python", environment / "bin" / "python")
    code, log, err = set_up(checkout, MT_VENV=environment if is_named else "")
    assert code == 0, err
    assert environments(log) == {str(environment)}


def test_it_installs_again_when_versions_change_or_another_checkout_was_installed(checkout: Path) -> None:
    assert set_up(checkout)[1]
    assert not set_up(checkout)[1]
    stamp = checkout / ".venv" / ".mt-installed"
    files = [checkout / name for name in ("pyproject.toml", "constraints.txt")]
    for changed in files:
        # Newer than what is installed, and the other file older.
        for seconds, paths in ((1, files), (2, [stamp]), (3, [changed])):
            for path in paths:
                os.utime(path, (seconds, seconds))
        assert set_up(checkout)[1]
        assert not set_up(checkout)[1]
    stamp.write_text("/elsewhere\n")
    assert set_up(checkout)[1]


@pytest.fixture
def bare_checkout(tmp_path: Path) -> Path:
    """The scripts without an environment, where installing leaves a file behind."""
    for name in ("bench", "reproduce", "environment"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    (tmp_path / "scripts" / "setup").write_text("touch installed; exit 9\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code", "usage"),
    [
        ("bench --help", 0, "scripts/bench --data FOLDER"),
        ("bench --race --help", 0, "scripts/bench --race --data FOLDER"),
        ("reproduce --help", 0, "scripts/reproduce NAME"),
        ("reproduce", 2, "scripts/reproduce NAME"),
    ],
)
def test_help_installs_nothing(command: str, code: int, usage: str, bare_checkout: Path) -> None:
    name, *arguments = command.split()
    environment = {key: value for key, value in os.environ.items() if key != "MT_VENV"}
    ended = subprocess.run(
        [bare_checkout / "scripts" / name, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    assert usage in ended.stdout
    assert not (bare_checkout / "installed").exists()
