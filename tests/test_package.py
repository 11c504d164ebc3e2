"""The wheel: what is in it, and that it runs in an environment that has nothing else of this checkout."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import mt
from mt.config.load import load_config

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INSTALLING = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], check=True)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel, which sees what it needs in the environment of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = ["pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, "-m", *command], check=True)
    # Only now, so that pip does not find an mt that is installed there. Its .pth files are not read.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    )
    return folder


def _run(environment: Path, folder: Path, *arguments: str) -> str:
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(environment / "bin" / arguments[0]), *arguments[1:]]
    done = subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_the_wheel_has_the_package_its_types_and_the_recipes_and_no_more(wheel: Path) -> None:
    # For every system and version of Python.
    assert wheel.name == f"mt_from_scratch-{mt.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    inside = [name for name in names if not re.match(r"mt_from_scratch-[\d.]+\.dist-info/", name)]
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "mt").rglob("*.py")}
    recipes = {f"mt/configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")}
    assert {"mt/py.typed", "mt/builtin/primer.zip"} <= set(inside)
    assert sources | recipes <= set(inside)
    assert {name.split("/")[0] for name in inside} == {"mt"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_it_runs_where_nothing_else_of_the_checkout_is(environment: Path, tmp_path: Path) -> None:
    where = _run(environment, tmp_path, "python", "-c", "import mt; print(mt.__file__)")
    assert Path(where.strip()).is_relative_to(environment)
    for name in ("mt", "mtrain"):
        assert _run(environment, tmp_path, name, "--version") == f"mt {mt.__version__}\n"
    listed = _run(environment, tmp_path, "mt", "init", "--recipe", "list")
    assert set(listed.splitlines()) == {file.stem for file in (ROOT / "configs").glob("*.yaml")}
    (tmp_path / "quickstart.yaml").write_text(
        _run(environment, tmp_path, "mt", "init", "--recipe", "quickstart")
    )
    assert load_config(tmp_path / "quickstart.yaml").data.path == "builtin:primer"
    assert "learning_rate: 0.001" in _run(environment, tmp_path, "mt", "config", "schedule")
    # With torch, through the packages of the other environment.
    assert "Translator" in _run(
        environment, tmp_path, "python", "-c", "from mt import Translator as T; print(T)"
    )


def test_the_extras_are_documented() -> None:
    documented = re.findall(r"^\| `(\w+)` \|", INSTALLING, re.MULTILINE)
    assert set(documented) == set(PROJECT["optional-dependencies"])
