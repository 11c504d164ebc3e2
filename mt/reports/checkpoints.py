"""The checkpoints of a run as they are on disk: sizes, scores, and whether anything is missing.

The weights are not read, only the headers of their files, which say how long each file must be.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from mt.checkpoint.directory import BEST, LATEST, average_names, read_pointer, step_names
from mt.checkpoint.record import (
    MODEL,
    RECORD,
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

_MAX_HEADER_BYTES = 10_000_000
# How safetensors writes a tensor; parsing all of the header would take longer than everything else.
_TENSOR = re.compile(
    rb'"dtype":"(\w{1,8})","shape":\[[\d,]{0,100}\],"data_offsets":\[(\d{1,18}),(\d{1,18})\]', re.ASCII
)
_BYTES = {b"F64": 8, b"F32": 4, b"F16": 2, b"BF16": 2}
_COUNTERS = TypeAdapter(Counters)


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint, sound or not."""

    name: str
    num_bytes: int = 0
    written: float = 0.0
    """When it was written, in seconds since 1970."""
    is_best: bool = False
    is_latest: bool = False
    record: Checkpoint | None = None
    """None if it cannot be read."""
    num_parameters: int | None = None
    """Weights of the model; tied ones count once."""
    problem: str | None = None
    """Why it cannot be used; None if nothing was found."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run, from the oldest step to the newest, then the averages."""

    found: list[SavedCheckpoint] = field(default_factory=list)
    problem: str | None = None
    """Why the run cannot be used, such as a damaged newest checkpoint."""

    @property
    def latest(self) -> SavedCheckpoint | None:
        """The one to resume from."""
        return next((each for each in self.found if each.is_latest), None)

    @property
    def best(self) -> SavedCheckpoint | None:
        """The one to translate with; until a validation has marked one, the latest."""
        return next((each for each in self.found if each.is_best), None) or self.latest


def read_checkpoints(run: RunDirectory, *, pointed_at_only: bool = False) -> Checkpoints:
    """Look at the checkpoints of a run.

    Args:
        run: The run.
        pointed_at_only: Look at the best and the latest only, which is faster.
    """
    folder = run.checkpoints_dir
    try:
        names = step_names(folder)
        averages = average_names(folder)
    except CheckpointError as error:
        return Checkpoints(problem=error.message)
    pointers = {pointer: read_pointer(folder, pointer) for pointer in (LATEST, BEST)}
    # A process that was killed between writing the first checkpoint and the pointer has left no pointer.
    latest = pointers[LATEST] or (names[-1] if names else None)
    wanted = [name for name in names if name in (latest, pointers[BEST])] if pointed_at_only else names
    found = []
    for name in [*wanted, *(() if pointed_at_only else averages)]:
        # Training removes old checkpoints.
        with contextlib.suppress(VanishedError):
            found.append(_inspect(folder / name, is_best=name == pointers[BEST], is_latest=name == latest))
    return Checkpoints(found, _problem(folder, names, pointers, found))


def _problem(
    folder: Path, names: list[str], pointers: dict[str, str | None], found: list[SavedCheckpoint]
) -> str | None:
    for pointer, name in pointers.items():
        if name is None and os.path.lexists(folder / pointer):
            return f"checkpoints/{pointer} does not name a checkpoint"
        if name is not None and name not in names:
            return f"checkpoints/{name}, the {pointer} one, is missing"
    needed = (each for each in found if each.is_best or each.is_latest)
    return next(
        (f"checkpoints/{each.name}: {each.problem}" for each in needed if each.problem is not None), None
    )


def _inspect(folder: Path, *, is_best: bool, is_latest: bool) -> SavedCheckpoint:
    """Look at one checkpoint."""
    record, num_parameters, problem, written, num_bytes = None, None, None, 0.0, 0
    with contextlib.suppress(OSError):
        written = (folder / RECORD).stat().st_mtime
    try:
        record = read_record_of(folder)
        for part in record.parts:
            size, parameters = _measure(folder, part)
            num_bytes += size
            if part == MODEL:
                num_parameters = parameters
    except CheckpointError as error:
        problem = error.message
    return SavedCheckpoint(
        folder.name, num_bytes, written, is_best, is_latest, record, num_parameters, problem
    )


def _measure(folder: Path, part: str) -> tuple[int, int]:
    """The size of a part, and the number of values in its tensors if it has any."""
    with explain_unreadable(part), (folder / part).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if part not in (MODEL, TENSORS):
            return size, 0
        header_bytes = int.from_bytes(file.read(8), "little")
        header = file.read(header_bytes) if header_bytes <= _MAX_HEADER_BYTES else b""
    tensors = [(_BYTES.get(dtype, 4), int(start), int(end)) for dtype, start, end in _TENSOR.findall(header)]
    if size != 8 + header_bytes + max((end for _, _, end in tensors), default=0):
        raise DamagedError(f"{part} is not what was saved (its length is wrong)")
    return size, sum((end - start) // width for width, start, end in tensors)


def read_counters(checkpoint: Checkpoint) -> Counters | None:
    """Where training was when this checkpoint was saved; None for an average."""
    if VALUES not in checkpoint.training_parts:
        return None
    try:
        content = json.loads(read_part(checkpoint, VALUES))
        return _COUNTERS.validate_python(content["state"])
    except (ValueError, LookupError, TypeError, RecursionError, ValidationError) as error:
        raise DamagedError(f"{VALUES} was not written by mt") from error
