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


def inspect_checkpoint(folder: Path) -> SavedCheckpoint:
    """Read the record of a checkpoint and the headers of its tensors, whose length is checked."""
    record, num_values, problem = None, {}, None
    try:
        record = read_record(folder)
        for part in record.parts:
            with explain_unreadable(part):
                if part == VALUES:
                    (folder / part).stat()
                    continue
                with safe_open(folder / part, framework="numpy") as tensors:
                    shapes = [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118
                num_values[part] = sum(map(math.prod, shapes))
    except CheckpointError as error:
        problem = str(error)
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
        return _COUNTERS.validate_json(json.dumps(json.loads(read_part(checkpoint, VALUES))["state"]))
    except (ValueError, LookupError, TypeError, RecursionError, ValidationError) as error:
        raise DamagedError(f"{VALUES} was not written by mt") from error
