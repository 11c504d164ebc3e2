"""The checkpoints of a run as they are on disk: sizes, scores, and whether anything is missing.

The weights are not read, only the headers of their files, which say how long each file must be.
"""

import contextlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open

from mt.checkpoint.record import (
    MODEL,
    VALUES,
    Checkpoint,
    DamagedError,
    explain_unreadable,
    read_part,
    read_record,
)
from mt.checkpoint.store import BEST, LATEST, CheckpointStore
from mt.errors import CheckpointError
from mt.training.counters import Counters

_COUNTERS = TypeAdapter(Counters)


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint, sound or not."""

    name: str
    record: Checkpoint | None
    """None if it cannot be read."""
    num_bytes: int
    num_parameters: int | None
    """Weights of the model; tied ones count once."""
    problem: str | None
    """Why it cannot be used."""


def read_checkpoints(run: RunDirectory, problems: list[str]) -> list[SavedCheckpoint]:
    """The checkpoints from the oldest step to the newest, then the averages.

    What is wrong with the newest or the best one is added to ``problems``.
    """
    folder, store = run.checkpoints_dir, CheckpointStore(run.checkpoints_dir)
    try:
        steps, averages = store.names(), store.averages()
    except CheckpointError as error:
        problems.append(error.message)
        return []
    pointers = {pointer: store.pointer(pointer) for pointer in (LATEST, BEST)}
    for pointer, name in pointers.items():
        if name is None and os.path.lexists(folder / pointer):
            problems.append(f"checkpoints/{pointer} does not name a checkpoint")
        if name is not None and name not in steps:
            problems.append(f"checkpoints/{name}, the {pointer} one, is missing")
    # A process that was killed between writing the first checkpoint and the pointer has left no pointer.
    latest = pointers[LATEST] or (steps[-1] if steps else None)
    saved = []
    for name in (*steps, *averages):
        if (folder / name).is_dir():  # Training removes old ones.
            saved.append(_inspect(folder / name, is_best=name == pointers[BEST], is_latest=name == latest))
    needed = [checkpoint for checkpoint in saved if checkpoint.is_best or checkpoint.is_latest]
    problems += [f"checkpoints/{saved.name}: {saved.problem}" for saved in needed if saved.problem]
    return saved


def _inspect(folder: Path, *, is_best: bool, is_latest: bool) -> SavedCheckpoint:
    content, num_bytes, num_parameters = None, 0, 0
    try:
        content = read_record(folder)
        for part in content.parts:
            with explain_unreadable(part):
                if part == VALUES:
                    (folder / part).stat()
                    continue
                with safe_open(folder / part, framework="numpy") as tensors:
                    shapes = [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118
                num_values[part] = sum(map(math.prod, shapes))
    except CheckpointError as error:
        problem = error.message
    except SafetensorError:
        problem = f"{part} is not what was saved (wrong header or length)"
    return SavedCheckpoint(folder.name, record, num_bytes(folder), num_values.get(MODEL), problem)


def num_bytes(folder: Path) -> int:
    """The size of all files below a folder; links are not followed."""
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):  # Training removes old checkpoints.
                total += os.lstat(f"{parent}/{file}").st_size
    return total


def read_counters(checkpoint: Checkpoint) -> Counters:
    """Where training was when this checkpoint was saved."""
    try:
        return _COUNTERS.validate_python(json.loads(read_part(checkpoint, VALUES))["state"])
    except (ValueError, LookupError, TypeError, RecursionError, ValidationError) as error:
        raise DamagedError(f"{VALUES} was not written by mt") from error
