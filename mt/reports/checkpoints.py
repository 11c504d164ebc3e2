"""The checkpoints of a run as they are on disk: sizes, scores, and whether anything is missing.

The weights are not read, only the headers of their files, which say how long each file must be.
"""

import contextlib
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open

from mt.checkpoint.directory import BEST, LATEST, average_names, read_pointer, step_names
from mt.checkpoint.record import (
    MODEL,
    TENSORS,
    VALUES,
    Checkpoint,
    DamagedError,
    VanishedError,
    explain_unreadable,
    read_part,
    read_record_of,
)
from mt.errors import CheckpointError
from mt.run_directory import RunDirectory
from mt.training.counters import Counters

_COUNTERS = TypeAdapter(Counters)


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint, sound or not."""

    name: str
    is_best: bool
    is_latest: bool
    record: Checkpoint | None = None
    """None if it cannot be read."""
    num_bytes: int = 0
    num_parameters: int | None = None
    """Weights of the model; tied ones count once."""
    problem: str | None = None
    """Why it cannot be used; None if nothing is wrong."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, from the oldest step to the newest, then the averages."""

    saved: list[SavedCheckpoint] = field(default_factory=list)
    problem: str | None = None
    """Why the run cannot be used, such as a damaged newest checkpoint."""

    @property
    def latest(self) -> SavedCheckpoint | None:
        """The one to resume from."""
        return next((checkpoint for checkpoint in self.saved if checkpoint.is_latest), None)

    @property
    def best(self) -> SavedCheckpoint | None:
        """The one to translate with; until a validation has marked one, the latest."""
        return next((checkpoint for checkpoint in self.saved if checkpoint.is_best), None) or self.latest


def read_checkpoints(run: RunDirectory) -> Checkpoints:
    """Look at the checkpoints of a run, which training may remove meanwhile."""
    folder = run.checkpoints_dir
    try:
        steps, averages = step_names(folder), average_names(folder)
    except CheckpointError as error:
        return Checkpoints(problem=error.message)
    best, latest = (read_pointer(folder, pointer) for pointer in (BEST, LATEST))
    # A process that was killed between writing the first checkpoint and the pointer has left no pointer.
    newest = latest or (steps[-1] if steps else None)
    saved = []
    for name in (*steps, *averages):
        with contextlib.suppress(VanishedError):
            saved.append(_inspect(folder / name, is_best=name == best, is_latest=name == newest))
    problems = []
    for pointer, target in ((LATEST, latest), (BEST, best)):
        if target is None and os.path.lexists(folder / pointer):
            problems.append(f"checkpoints/{pointer} does not name a checkpoint")
        if target is not None and target not in steps:
            problems.append(f"checkpoints/{target}, the {pointer} one, is missing")
    for checkpoint in saved:
        if checkpoint.problem and (checkpoint.is_best or checkpoint.is_latest):
            problems.append(f"checkpoints/{checkpoint.name}: {checkpoint.problem}")
    return Checkpoints(saved, problems[0] if problems else None)


def _inspect(folder: Path, *, is_best: bool, is_latest: bool) -> SavedCheckpoint:
    record = None
    try:
        record = read_record_of(folder)
        num_bytes = num_parameters = 0
        for part in record.parts:
            with explain_unreadable(part):
                num_bytes += (folder / part).stat().st_size
                if part in (MODEL, TENSORS):
                    num_values = _num_values(folder / part)
                    num_parameters += num_values if part == MODEL else 0
    except CheckpointError as error:
        return SavedCheckpoint(folder.name, is_best, is_latest, record, problem=error.message)
    return SavedCheckpoint(folder.name, is_best, is_latest, record, num_bytes, num_parameters)


def _num_values(file: Path) -> int:
    """The number of values in all tensors of a file, whose length must be that in its header."""
    try:
        with safe_open(file, framework="numpy") as tensors:
            return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    except SafetensorError as error:
        raise DamagedError(
            f"{file.name} is not what was saved (its header or its length is wrong)"
        ) from error


def read_counters(checkpoint: Checkpoint) -> Counters | None:
    """Where training was when this checkpoint was saved; None for an average."""
    if VALUES not in checkpoint.training_parts:
        return None
    try:
        content = json.loads(read_part(checkpoint, VALUES))
        return _COUNTERS.validate_python(content["state"])
    except (ValueError, LookupError, TypeError, RecursionError, ValidationError) as error:
        raise DamagedError(f"{VALUES} was not written by mt") from error
