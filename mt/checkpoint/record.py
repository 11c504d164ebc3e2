"""``checkpoint.json``: what a checkpoint says of itself, sealed, and the checksums of its other parts."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from mt import __version__
from mt.errors import CheckpointError
from mt.regular_files import decode_utf8, open_regular, read_bytes

FORMAT_VERSION = 2
RECORD = "checkpoint.json"
_MAX_RECORD_BYTES = 1_000_000
_MOST_VERSIONS = 1000
_BLANK_SEAL = "0" * 64
_MAX_STEP = 10**18
_VERSION = re.compile(r"[\w.+-]{1,40}", re.ASCII)

Scalar = bool | int | float | str | None


class DamagedError(CheckpointError):
    """A part of a checkpoint is not what was saved; the message is the reason, for others to build on."""


@dataclass(frozen=True)
class Checkpoint:
    """What a sound ``checkpoint.json`` says; the other parts are verified when they are loaded."""

    folder: Path
    """Its folder, whose name is the name of the checkpoint."""

    step: Annotated[int, Field(ge=0, lt=_MAX_STEP)]
    """Optimizer steps taken when it was saved."""

    best: bool
    """Whether it was the best of the run when it was saved."""

    metrics: dict[str, float]
    """Its validation scores."""

    environment: dict[str, Annotated[str, Field(max_length=1000)] | Annotated[int, Field(ge=0, lt=10**18)]]
    """What it was made with: versions, device, threads."""

    checksums: dict[str, str]
    """SHA-256 of each other part, by file name."""

    tokenizers: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the run's tokenizer files under ``src`` and ``tgt``; the first checkpoints had none."""

    average_of: list[str] = field(default_factory=list)
    """The checkpoints whose mean it is; it cannot be trained further. Empty for one that was trained."""

    computation: dict[str, Scalar] = field(default_factory=dict)
    """The options that decide what its weights compute, such as ``model.num_heads``, with their values; the
    first checkpoints had none."""

    format_version: Annotated[int, Field(strict=True, ge=1, lt=_MOST_VERSIONS)] = FORMAT_VERSION
    """The format of its files."""

    @property
    def name(self) -> str:
        """Such as ``step_0004000``."""
        return self.folder.name


def record_text(checkpoint: Checkpoint) -> str:
    """The text of its ``checkpoint.json``."""
    return _seal(
        {
            "format_version": checkpoint.format_version,
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
        folder: The checkpoint's folder, whose name the record must fit.
        opened: The descriptor of that folder, where it is open: then it may have been moved meanwhile.

    Raises:
        DamagedError: If it is missing, altered, or does not belong to this folder.
        CheckpointError: If it is sound, but of a format newer than this version of ``mt`` can read.
    """
    path = folder / RECORD if opened is None else Path(RECORD)
    with explain_unreadable(RECORD):
        text = decode_utf8(read_bytes(path, max_bytes=_MAX_RECORD_BYTES, folder=opened), path)
    content = _unseal(text)
    version, writer = content.get("format_version"), content.get("mt_version")
    if type(version) is int and version > FORMAT_VERSION:
        # Nothing else of an unknown format is shown, whatever it may hold.
        if version >= _MOST_VERSIONS or not isinstance(writer, str) or not _VERSION.fullmatch(writer):
            raise DamagedError(f"{RECORD} has the wrong fields")
        raise CheckpointError(
            f"Checkpoint {folder} has format {version}, and mt {__version__} reads formats up to "
            f"{FORMAT_VERSION}. Read it with mt {writer}, which wrote it, or newer."
        )
    try:
        checkpoint = TypeAdapter(Checkpoint).validate_python({**content, "folder": folder})
    except (ValidationError, OverflowError) as error:
        raise DamagedError(f"{RECORD} has the wrong fields") from error
    expected = average_name(checkpoint.step) if checkpoint.average_of else step_name(checkpoint.step)
    if checkpoint.name != expected:
        raise DamagedError(f"{RECORD} is that of step {checkpoint.step}")
    return checkpoint


def verify_part(checkpoint: Checkpoint, part: str) -> Path:
    """Compare the file ``part`` of ``checkpoint`` with its checksum; its path.

    Raises:
        DamagedError: If it is missing, cannot be read, or differs.
    """
    path = checkpoint.folder / part
    with explain_unreadable(part), open_regular(path) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    refuse_other_checksum(checkpoint, part, found)
    return path


def refuse_other_checksum(checkpoint: Checkpoint, part: str, found: str) -> None:
    """Compare the SHA-256 of what was read of a part with what the record says.

    Raises:
        DamagedError: If they differ.
    """
    if found != checkpoint.checksums.get(part):
        raise DamagedError(f"{part} is not what was saved (its checksum differs)")


def step_name(step: int) -> str:
    """The name of the checkpoint of one step; sort by the number, which may grow longer."""
    return f"step_{step:07d}"


def average_name(step: int) -> str:
    """The name of the average whose last checkpoint is that of ``step``."""
    return f"average_{step:07d}"


@contextmanager
def explain_unreadable(part: str) -> Iterator[None]:
    """Make a DamagedError of what the system says while a part is read."""
    try:
        yield
    except FileNotFoundError as error:
        raise DamagedError(f"{part} is missing") from error
    except OSError as error:
        raise DamagedError(f"{part} cannot be read ({error.strerror})") from error


def _seal(content: Mapping[str, object]) -> str:
    """JSON whose first value is the checksum of all its bytes, with zeros in the place of that checksum.

    Over the bytes and not over what they mean, so that any format to come can be told from a damaged one.
    """
    blank = json.dumps({"seal": _BLANK_SEAL, **content}, indent=2) + "\n"
    return blank.replace(_BLANK_SEAL, hashlib.sha256(blank.encode()).hexdigest(), 1)


def _unseal(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{RECORD} is not what was saved (it is no JSON)") from error
    if not isinstance(content, dict) or not isinstance(seal := content.pop("seal", None), str):
        raise DamagedError(f"{RECORD} is not what was saved (it has no seal)")
    if hashlib.sha256(text.replace(seal, _BLANK_SEAL, 1).encode()).hexdigest() != seal:
        raise DamagedError(f"{RECORD} is not what was saved (its checksum differs)")
    return content
