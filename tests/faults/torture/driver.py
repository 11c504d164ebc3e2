"""A process that calls mt as the command line does, and has something happen to it on the way.

Its argument is JSON with the fields of `Order`.
"""

import builtins
import errno
import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mt.training.run
import mt.training.session
from mt.__main__ import main
from mt.training.progress import Progress

# How many of the first arguments say where.
DISK_CALLS = {"mkdir": 1, "fsync": 1, "rename": 2, "replace": 2, "unlink": 1, "rmdir": 1}
# A full disk still removes.
NEED_ROOM = ("mkdir", "fsync", "rename", "replace")


@dataclass(frozen=True)
class Order:
    """What to run, and what is to happen when."""

    arguments: list[str]
    run: str
    """The run directory: what happens elsewhere on the disk is not looked at."""
    point: str = ""
    """The name of a point, as ``record`` lists them."""
    occurrence: int = 1
    """Which time that point is passed."""
    happens: str = ""
    """``kill``, ``half`` (killed, half of the file written), ``full`` (no room from there on), signals."""
    room: int | None = None
    """So many bytes can be written in all, then the disk is full."""
    record: str = ""
    """A file that gets the name of each point that is passed."""


class Fate:
    """Watches the points that a process passes, and strikes at the one that is named."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.passed = 0
        self.is_full = False

    def reach(self, point: str, path: str = "") -> None:
        """A point is passed; ``path`` is the file that is about to be complete there."""
        if self.order.record:
            with Path(self.order.record).open("a") as file:
                file.write(point + "\n")
        if self.is_full and point.split(" ")[0] == "before" and point.split(" ")[1] in NEED_ROOM:
            raise _full(point)
        if point != self.order.point:
            return
        self.passed += 1
        if self.passed == self.order.occurrence:
            self._strike(point, path)

    def _strike(self, point: str, path: str) -> None:
        match self.order.happens:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "half":
                os.truncate(path, Path(path).stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            case "full":
                self.is_full = True
                raise _full(point)
            case names:
                for name in names.split():
                    os.kill(os.getpid(), signal.Signals[name])


def _full(what: str) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)


def watch_disk(fate: Fate, run: str) -> None:
    """Make a point of every call that changes names on the disk or has them written, inside the run."""

    def watched(name: str, num_paths: int, really: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            paths = [_path(each, keywords.get("dir_fd")) for each in arguments[:num_paths]]
            inside = [os.path.relpath(path, run) for path in paths if path.startswith(run + os.sep)]
            if not inside:
                return really(*arguments, **keywords)
            what = re.sub(r"step_\d+", "step", re.sub(r"partial-[\w-]+", "partial", " -> ".join(inside)))
            fate.reach(f"before {name} {what}", paths[0])
            result = really(*arguments, **keywords)
            fate.reach(f"after {name} {what}")
            return result

        return call

    for name, num_paths in DISK_CALLS.items():
        setattr(os, name, watched(name, num_paths, getattr(os, name)))


def _path(argument: Any, folder: int | None) -> str:
    """Where a call points: at an open file, at a name in an open folder, or at a path."""
    if isinstance(argument, int):
        return str(Path(f"/proc/self/fd/{argument}").readlink())
    beginning = Path.cwd() if folder is None else Path(f"/proc/self/fd/{folder}").readlink()
    return str(beginning / argument)


def watch_phases(fate: Fate) -> None:
    """Make a point of the beginning and the end of loading, of each step, and of each validation."""

    def watched(name: str, really: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            fate.reach(f"begin {name}")
            result = really(*arguments, **keywords)
            fate.reach(f"end {name}")
            return result

        return call

    run: Any = mt.training.run
    session: Any = mt.training.session
    run.prepare = watched("loading", run.prepare)
    session.validate = watched("validation", session.validate)
    session.ModelTranslator.translate = watched("translating", session.ModelTranslator.translate)
    Progress.step = watched("step", Progress.step)  # type: ignore[method-assign]


def limit_room(room: int, run: str) -> None:
    """Let all files of the run that Python opens from now on share ``room`` bytes."""
    left = room

    class Limited(io.FileIO):
        def write(self, data: Any, /) -> int:
            nonlocal left
            view = memoryview(data).cast("B")
            if len(view) and not left:
                raise _full(str(self.name))
            written = super().write(view[:left])
            left -= written
            return written

    def limited_open(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
        path = "" if isinstance(file, int) else str(Path(os.fsdecode(file)).absolute())
        if not set(mode) & set("wax") or not path.startswith(run + os.sep):
            return really_open(file, mode, *arguments, **keywords)
        raw = io.BufferedWriter(Limited(path, mode.replace("b", "").replace("t", "")))
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding="utf-8")

    really_open = builtins.open
    builtins.open = io.open = limited_open


def obey(order: Order) -> None:
    """Be the process that was ordered."""
    fate = Fate(order)
    watch_disk(fate, order.run)
    watch_phases(fate)
    if order.room is not None:
        limit_room(order.room, order.run)
    sys.argv = ["mt", *order.arguments]
    main()


if __name__ == "__main__":
    obey(Order(**json.loads(sys.argv[1])))
