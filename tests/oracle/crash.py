"""Kills a run at each of its writes, and flips bits in what it saved; afterwards it must end as if unbroken.

Nothing in here depends on how mt writes: any call that changes a name on the disk, opens a file to write or
has it written counts, inside the run directory.
"""

import itertools
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import mt
from tests.oracle.cases import write_tiny
from tests.oracle.probe import Record, fingerprint

CONFIG = Path("tiny.yaml")
BEFORE, END = 3, 4
"""Steps of the run that is resumed again and again, and of the finished one."""
MORE = ["checkpoint.every_steps=1", "checkpoint.keep=2", "validation.every_steps=1", "training.ema_decay=0.9"]
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}


def session(run: Path, steps: int, watch: Callable[[str, Path], None] | None = None) -> int:
    """Train up to ``steps`` in a child of this process, which has imported everything; its exit status."""
    child = os.fork()
    if not child:
        os.dup2(os.open("crash.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        if watch:
            watch_writes(run.absolute(), watch)
        mt.train(mt.load_config(CONFIG, [*MORE, f"training.max_steps={steps}"]), run)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def watch_writes(run: Path, watch: Callable[[str, Path], None]) -> None:
    """Call ``watch`` before each write inside the run directory."""

    def inside(what: str, where: Any) -> None:
        path = (
            Path(f"/proc/self/fd/{where}").readlink() if isinstance(where, int) else Path(os.fsdecode(where))
        )
        # A path may count from an open folder, which is inside.
        if not path.is_absolute() or path.is_relative_to(run):
            watch(what, path)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            inside(event, arguments[0])

    def synced(descriptor: int) -> None:
        inside("os.fsync", descriptor)
        fsync(descriptor)

    fsync = os.fsync
    os.fsync = synced  # type: ignore[assignment]
    sys.addaudithook(hook)


def killing(run: Path, at: int, *, half: bool) -> Callable[[str, Path], None]:
    """Kill this process at the write of that number, perhaps with only half of what is new in the file."""
    count = itertools.count()
    sizes = {path.absolute(): path.stat().st_size for path in run.rglob("*")}

    def watch(what: str, path: Path) -> None:
        if next(count) == at:
            if half:
                os.truncate(path, (sizes.get(path, 0) + path.stat().st_size) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    return watch


def writes(run: Path) -> list[str]:
    """The names of the writes of a session from `BEFORE` to `END`, which is then finished."""
    with Path("writes").open("w+") as file:

        def watch(what: str, path: Path) -> None:
            print(what, "folder" if path.is_dir() else "file", file=file, flush=True)

        assert session(run, END, watch) == 0
        file.seek(0)
        return file.read().splitlines()


def finished(run: Path) -> Record:
    """What an unbroken run has, and the names of its files, where it does not matter which steps are kept."""
    paths = [str(path.relative_to(run)) for path in run.rglob("*") if "tfevents" not in path.name]
    return {**fingerprint(run), "files": sorted({re.sub(r"step_\d+", "step", path) for path in paths})}


def main() -> None:
    """Record each trial under a name that says what the unbroken run must have been equal to.

    The arguments are the file for the record, and how many kills one is chosen of.
    """
    stride = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    write_tiny()
    # Imports what the first optimizer of a process does, so that no child has to.
    torch.optim.AdamW([torch.zeros(1)])
    begun, unbroken = Path("begun"), Path("unbroken")
    assert session(begun, BEFORE) == 0
    shutil.copytree(begun, unbroken)
    names = writes(unbroken)
    record = {"unbroken": finished(unbroken)}
    trial = Path("trial")

    def end(name: str) -> None:
        code = session(trial, END)
        record[f"unbroken -> {name}"] = finished(trial) if code == 0 else {"exit code": code}
        shutil.rmtree(trial)

    for number, what in list(enumerate(names))[::stride]:
        for half in (False, True) if what == "os.fsync file" else (False,):
            shutil.copytree(begun, trial)
            assert session(trial, END, killing(trial, number, half=half)) == -signal.SIGKILL, what
            end(f"killed at write {number}, {what}{', half written' * half}")
    newest = begun / "checkpoints" / (begun / "checkpoints" / "latest").read_text().strip()
    for part, quarter in itertools.product(sorted(newest.iterdir()), range(4)):
        shutil.copytree(begun, trial)
        damaged = bytearray(part.read_bytes())
        damaged[len(damaged) * quarter // 4 + 7] ^= 1 << quarter
        (trial / part.relative_to(begun)).write_bytes(damaged)
        end(f"a bit flipped in {part.name}, {quarter} quarters in")
    Path(sys.argv[1]).write_text(json.dumps(record))


if __name__ == "__main__":
    main()
