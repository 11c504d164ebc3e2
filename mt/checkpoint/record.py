"""``checkpoint.json``: the record of a checkpoint, sealed, with the checksums of its other parts."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from mt import __version__
from mt.config.located_yaml import Scalar
from mt.errors import CheckpointError
from mt.files import read_bytes, read_text, sha256

FORMAT_VERSION = 2
RECORD, MODEL = "checkpoint.json", "model.safetensors"
TENSORS, VALUES = "training_state.safetensors", "training_state.json"
_MAX_RECORD_BYTES = 1_000_000
_MAX_VALUES_BYTES = 100_000
_EMPTY_SEAL = "0" * 64
_MAX_STEP = 10**18


class DamagedError(CheckpointError):
    """A part of a checkpoint is not what was saved; the message says why, but not which checkpoint."""


class VanishedError(Exception):
    """The folder of a checkpoint is missing, or was removed or replaced while it was opened."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a sound ``checkpoint.json``; the other parts are verified when they are loaded."""

    folder: Path
    """Its folder, whose name is the name of the checkpoint."""

    step: Annotated[int, Field(ge=0, lt=_MAX_STEP)]
    """Optimizer steps taken when it was saved."""

    best: bool
    """Whether it was the best of the run when it was saved."""

    metrics: dict[str, float]
    """Its validation scores."""

    environment: dict[str, Annotated[str, Field(max_length=1000)] | Annotated[int, Field(ge=0, lt=10**18)]]
    """How it was made: versions, device, threads."""

    checksums: dict[str, str]
    """SHA-256 of each other part, by file name."""

    tokenizers: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the run's tokenizer files under ``src`` and ``tgt``; empty in the first checkpoints."""

    average_of: list[str] = field(default_factory=list)
    """The checkpoints that an average is the mean of; empty for a checkpoint that training saved."""

    computation: dict[str, Scalar] = field(default_factory=dict)
    """The options that determine what its weights compute, such as ``model.num_heads``, with their values;
    empty in the first checkpoints."""

    @property
    def name(self) -> str:
        """The name of its folder, such as ``step_0004000``."""
        return self.folder.name

    @property
    def training_parts(self) -> tuple[str, ...]:
        """The files of its training state; an average has none."""
        return () if self.average_of else (TENSORS, VALUES)

    @property
    def parts(self) -> tuple[str, ...]:
        """All its files besides the record."""
        return (MODEL, *self.training_parts)


_CHECKPOINT = TypeAdapter(Checkpoint)


def record_text(checkpoint: Checkpoint) -> str:
    """The text of its ``checkpoint.json``."""
    return _seal(
        {
            "format_version": FORMAT_VERSION,
            "mt_version": __version__,
            "step": checkpoint.step,
            "best": checkpoint.best,
            "metrics": checkpoint.metrics,
            "environment": checkpoint.environment,
            "checksums": checkpoint.checksums,
            "tokenizers": checkpoint.tokenizers,
            "average_of": checkpoint.average_of,
            "computation": checkpoint.computation,
        }
    )


def read_record(folder: Path, *, opened: int | None = None) -> Checkpoint:
    """Read and verify the ``checkpoint.json`` in ``folder``.

    Args:
        folder: The checkpoint's folder, whose name must match the record.
        opened: The descriptor of that folder, if it is open: it may have been moved in the meantime.
    """
    path = folder / RECORD if opened is None else Path(RECORD)
    with explain_unreadable(RECORD):
        text = read_text(path, max_bytes=_MAX_RECORD_BYTES, folder=opened)
    content = _unseal(text)
    if (version := content.get("format_version")) != FORMAT_VERSION:
        raise CheckpointError(
            f"Checkpoint {folder} has format {version}, and mt {__version__} reads format {FORMAT_VERSION}. "
            f"Read it with the version that wrote it, mt {content.get('mt_version')}."
        )
    try:
        checkpoint = _CHECKPOINT.validate_python({**content, "folder": folder})
    except (ValidationError, OverflowError) as error:
        raise DamagedError(f"{RECORD} has the wrong fields") from error
    expected = average_name(checkpoint.step) if checkpoint.average_of else step_name(checkpoint.step)
    if checkpoint.name != expected:
        raise DamagedError(f"{RECORD} belongs to step {checkpoint.step}")
    return checkpoint


@contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """A folder's descriptor, which reaches its files even if the folder is moved."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise VanishedError from error
    except OSError as error:
        raise DamagedError(f"its folder cannot be read ({error.strerror})") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def unless_vanished(folder: Path, opened: int) -> Iterator[None]:
    """Raise a VanishedError instead of damage that is found while the folder is being removed."""
    try:
        yield
    except DamagedError as error:
        try:
            is_there = os.path.samestat(folder.stat(), os.fstat(opened))
        except OSError:
            is_there = False
        if is_there:
            raise
        raise VanishedError from error


def read_record_of(folder: Path) -> Checkpoint:
    """The record of the checkpoint in ``folder``, which another process may remove at any time."""
    with opened_folder(folder) as opened, unless_vanished(folder, opened):
        return read_record(folder, opened=opened)


def read_part(checkpoint: Checkpoint, part: str) -> bytes:
    """The content of the file ``part``, read once, so that the verified bytes are the bytes to parse."""
    path = checkpoint.folder / part
    with explain_unreadable(part):
        content = read_bytes(path, max_bytes=_MAX_VALUES_BYTES) if part == VALUES else path.read_bytes()
    refuse_other_checksum(checkpoint, part, content)
    return content


def verify_part(checkpoint: Checkpoint, part: str) -> None:
    """Compare the file ``part`` with its checksum, without loading it into memory."""
    with explain_unreadable(part):
        found = sha256(checkpoint.folder / part)
    _compare(checkpoint, part, found)


def refuse_other_checksum(checkpoint: Checkpoint, part: str, content: bytes) -> None:
    """Compare the content of a part with its checksum in the record."""
    _compare(checkpoint, part, hashlib.sha256(content).hexdigest())


def _compare(checkpoint: Checkpoint, part: str, found: str) -> None:
    if found != checkpoint.checksums.get(part):
        raise DamagedError(f"{part} is not what was saved (its checksum differs)")


def step_name(step: int) -> str:
    """The name of the checkpoint of a step; sort by the number, which may get more digits."""
    return f"step_{step:07d}"


def average_name(step: int) -> str:
    """The name of the average whose last checkpoint is that of ``step``."""
    return f"average_{step:07d}"


@contextmanager
def explain_unreadable(part: str) -> Iterator[None]:
    """Turn an OSError while a part is read into a DamagedError."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedError(f"{part} is missing") from error
    except OSError as error:
        raise DamagedError(f"{part} cannot be read ({error.strerror})") from error


def _seal(content: Mapping[str, object]) -> str:
    """JSON whose first value is the checksum of all its bytes, computed with zeros in place of the checksum.

    It covers the bytes, not their meaning, so that a future format can be distinguished from a damaged file.
    """
    unsealed = json.dumps({"seal": _EMPTY_SEAL, **content}, indent=2) + "\n"
    return unsealed.replace(_EMPTY_SEAL, hashlib.sha256(unsealed.encode()).hexdigest(), 1)


def _unseal(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{RECORD} is not what was saved (it is not JSON)") from error
    if not isinstance(content, dict) or not isinstance(seal := content.pop("seal", None), str):
        raise DamagedError(f"{RECORD} is not what was saved (it has no seal)")
    if hashlib.sha256(text.replace(seal, _EMPTY_SEAL, 1).encode()).hexdigest() != seal:
        raise DamagedError(f"{RECORD} is not what was saved (its checksum differs)")
    return content
