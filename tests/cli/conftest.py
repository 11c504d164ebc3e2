"""The command line, called as a shell would: in this process, or in one of its own."""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mt.__main__ import main
from tests.fixture_types import Call, Ended, Refuse, Start
from tests.processes import Popen, environment


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work where nothing is, and put the logging back that a command sets up."""
    monkeypatch.chdir(tmp_path)
    # Not that of this checkout, which may have one.
    monkeypatch.setattr("mt.cli.options.DEMO", tmp_path / "demo")
    logger = logging.getLogger("mt")
    before = logger.level, logger.propagate, logger.handlers
    yield
    level, logger.propagate, logger.handlers = before
    # Assigning to `level` would leave what the logger remembers of it.
    logger.setLevel(level)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Calls ``main`` as ``mt ARGUMENTS`` would."""

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        capfd.readouterr()
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code
        assert isinstance(code, int)
        return Ended(code, *capfd.readouterr())

    return run


@pytest.fixture
def succeed(call: Call) -> Call:
    """Calls a command, which must not fail."""

    def run(*arguments: str | Path) -> Ended:
        ended = call(*arguments)
        assert ended.code == 0, ended.err
        return ended

    return run


@pytest.fixture
def refuse(call: Call) -> Refuse:
    """Calls a command, sees that it ends with exit code 2 and one sentence, and returns that."""

    def run(*arguments: str | Path) -> str:
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        *before, last = err.removesuffix("\n").split("\n")
        # No traceback, no warning of a library: only what was chosen goes before.
        assert all(line.startswith(("run: ", "alignment: ")) for line in before), err
        assert last.startswith("mt: ")
        assert last.endswith((".", "?", ".yaml"))
        return last

    return run


@pytest.fixture
def remove_package(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets a package be missing, and a room and more modules, which import it, be imported again."""

    def remove(package: str, room: str, *more: str) -> None:
        if room in sys.modules:
            # Which is put back afterwards, with its modules.
            monkeypatch.setattr(room, sys.modules[room])
        for name in [name for name in sys.modules if name.startswith((room, f"{package}.", *more))]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)

    return remove


@pytest.fixture
def start() -> Start:
    """Starts ``python -m mt ARGUMENTS`` with pipes on all sides, with options of Python before ``-m``."""

    def run(*arguments: str | Path, python: tuple[str, ...] = (), **more: str) -> Popen:
        return Popen(
            [sys.executable, *python, "-m", "mt", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env=environment(COLUMNS="100", **more),
        )

    return run
