"""A pipe or a device in each place of a run where a file belongs: nobody waits, nothing grows."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from .driver import HUNG
from .processes import Driver
from .trial import Arena, Task, Trial, read_stderr

PHASE = "pipes and devices in place of files"
FILES = (
    "config.yaml",
    "corpus.json",
    "src_tokenizer.json",
    "tgt_tokenizer.json",
    "metrics.jsonl",
    "samples.jsonl",
    "train.log",
    "lock",
    "checkpoints/latest",
    "checkpoints/best",
    "BEST/checkpoint.json",
    "BEST/model.safetensors",
)
PLACES: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a silent device": lambda path: path.symlink_to("/dev/null"),
}


def pipes() -> list[Task]:
    """Each kind in each place, for who trains and who evaluates."""
    return [
        read_instead_of(file, kind, command)
        for file in FILES
        for kind in PLACES
        for command in ("train", "evaluate")
    ]


def path_of(run: Path, file: str) -> Path:
    """The path of one of `FILES`."""
    best = (run / "checkpoints" / "best").read_text().strip()
    return run / file.replace("BEST", f"checkpoints/{best}")


def put(kind: str, path: Path) -> None:
    """Put it where a file was."""
    path.unlink(missing_ok=True)
    PLACES[kind](path)


def read_instead_of(file: str, kind: str, command: str) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        trial = Trial(PHASE, f"{command}, {kind} in place of {file}")
        run = Path(shutil.copytree(arena.unbroken, arena.new_run()))
        put(kind, path_of(run, file))
        arguments = ["--config", arena.config] if command == "train" else ["--scores-only"]
        code = driver.call(command, *arguments, "--run", run, run=run)
        said = read_stderr(run)
        if code == HUNG:
            trial.blame("wrong", "it hung")
        elif code not in (0, 2) or "Traceback" in said:
            trial.blame("wrong", f"exit code {code}: {said[-400:]}")
        return trial

    return task
