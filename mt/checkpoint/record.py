"""``checkpoint.json``: the record of a checkpoint, with the checksums of its other parts and of itself."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from mt import __version__
from mt.checkpoint.seal import sealed, unsealed
from mt.config.located_yaml import Scalar
from mt.errors import CheckpointError
from mt.files import read_text

FORMAT_VERSION = 2
RECORD, MODEL = "checkpoint.json", "model.safetensors"
TENSORS, VALUES = "training_state.safetensors", "training_state.json"
_MAX_RECORD_BYTES = 1_000_000


class DamagedError(CheckpointError):
    """A part of a checkpoint is not what was saved; the message says why, but not which checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The content of a sound ``checkpoint.json``; the other parts are verified when they are loaded."""

    folder: Path = Path()
    """Its folder, whose name is its name; saving sets this and the checksums."""
    step: int
    best: bool
    """Whether it was the best of the run when it was saved."""
    metrics: dict[str, float] = field(default_factory=dict)
    environment: dict[str, str | int] = field(default_factory=dict)
    """How it was made: versions, device, threads."""
    checksums: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each other part, by file name."""
    tokenizers: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the tokenizer files of ``src`` and ``tgt``; empty in checkpoints from before this field."""
    average_of: list[str] = field(default_factory=list)
    """The checkpoints that an average is the mean of; empty for a checkpoint that training saved."""
    imported_from: str = ""
    """Where the weights are from, if they were not trained by mt."""
    computation: dict[str, Scalar] = field(default_factory=dict)
    """The options that determine what its weights compute; empty in checkpoints from before this field."""

    @property
    def name(self) -> str:
        """The name of its folder, such as ``step_0004000``."""
        return self.folder.name

    @property
    def parts(self) -> tuple[str, ...]:
        """All its files besides the record; an average or an import has no training state."""
        return (MODEL,) if self.average_of or self.imported_from else (MODEL, TENSORS, VALUES)


_CHECKPOINT = TypeAdapter(Checkpoint)


def record_text(checkpoint: Checkpoint) -> str:
    """The text of its ``checkpoint.json``."""
    content = asdict(checkpoint)
    del content["folder"]
    return sealed({"format_version": FORMAT_VERSION, "mt_version": __version__} | content)


def read_record(folder: Path) -> Checkpoint:
    """Read and verify the ``checkpoint.json`` in ``folder``, whose name must match it."""
    with explain_unreadable(RECORD):
        text = read_text(folder / RECORD, max_bytes=_MAX_RECORD_BYTES)
    try:
        content = unsealed(text)
    except ValueError as error:
        raise DamagedError(f"{RECORD} is not what was saved") from error
    if (version := content.get("format_version")) != FORMAT_VERSION:
        raise CheckpointError(
            f"Checkpoint {folder} has format {version}, and mt {__version__} reads format {FORMAT_VERSION}. "
            f"Read it with the version that wrote it, mt {content.get('mt_version')}."
        )
    try:
        checkpoint = _CHECKPOINT.validate_python({**content, "folder": folder})
    except ValidationError as error:
        raise DamagedError(f"{RECORD} has the wrong fields") from error
    name = average_name(checkpoint.step) if checkpoint.average_of else step_name(checkpoint.step)
    if checkpoint.name != name:
        raise DamagedError(f"{RECORD} belongs to step {checkpoint.step}")
    return checkpoint


def read_part(checkpoint: Checkpoint, part: str) -> bytes:
    """The content of the file ``part``, read once, so that the verified bytes are the bytes to parse."""
    with explain_unreadable(part):
        content = (checkpoint.folder / part).read_bytes()
    if hashlib.sha256(content).hexdigest() != checkpoint.checksums.get(part):
        raise DamagedError(f"{part} is not what was saved (its checksum differs)")
    return content


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
    except OSError as error:
        raise DamagedError(f"{part} is missing or unreadable ({error.strerror})") from error
