"""An exported folder: a model for another library, its tokenizers, and a record that describes it."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mt import __version__
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import CheckpointError
from mt.files import read_bytes, sha256

if TYPE_CHECKING:
    from mt.inference.loaded_model import LoadedModel

RECORD = "mt_export.json"
_MAX_RECORD_BYTES = 1_000_000
_FORMAT_VERSION = 2

Target = Literal["ctranslate2", "transformers"]
ExportPrecision = Literal["float32", "bf16", "int8"]


@dataclass(frozen=True)
class ModelFacts:
    """What translating with a model needs to know besides its weights and its tokenizers."""

    src: str
    tgt: str
    max_length: int
    """The most tokens that it reads or writes, including EOS."""
    copies_words: bool
    """Whether it has learnt to copy unknown words."""
    target_ratio: float
    """Target tokens per source token in the training data, for `mt.search.hypothesis.length_limit`."""
    example: str = ""
    """A sentence in the source language, if one is known."""
    checkpoint: str = ""
    """The name of its checkpoint."""


@dataclass(frozen=True, kw_only=True)
class ExportRecord(ModelFacts):
    """The content of ``mt_export.json``."""

    mt_version: str
    target: str
    run: str
    precision: str
    """The precision of the weights in the folder."""
    weights: str = ""
    """SHA-256 of the checkpoint's weights."""
    made_from: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the files of the run that it depends on besides the weights, by name."""
    verified: Mapping[str, Any] = field(default_factory=dict)
    """How it was compared with torch: versions, processor, sentences and scores."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file that the model is read from, by name."""


def is_exported(path: Path) -> bool:
    """Return whether a folder was written by an export."""
    return (path / RECORD).is_file()


def read_export_record(folder: Path) -> ExportRecord:
    """Read the record of an exported folder; the other files are not verified."""
    file = folder / RECORD
    try:
        content = json.loads(read_bytes(file, max_bytes=_MAX_RECORD_BYTES))
        if content.pop("format_version") != _FORMAT_VERSION:
            raise ValueError("it has another format")
        record = ExportRecord(**content)
        if record.max_length < 1 or not 0 < record.target_ratio < math.inf:
            raise ValueError("its lengths are impossible")
        return record
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}.") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{file} is damaged, or was written by another version of mt ({error}). Export the run again."
        ) from error


def open_exported(folder: Path) -> tuple[ExportRecord, Tokenizer, Tokenizer]:
    """The record and the tokenizers of an exported folder, all of whose files are verified."""
    record = read_export_record(folder)
    for name, checksum in record.checksums.items():
        # A stranger's record must not make us read files outside the folder.
        file = (folder / name).resolve()
        if not (file.is_relative_to(folder.resolve()) and file.is_file() and sha256(file) == checksum):
            raise CheckpointError(
                f"{folder / name} is missing or damaged (its checksum differs). Export the run again."
            )
    src, tgt = (Tokenizer.load(folder / f"{side}_tokenizer.json") for side in ("src", "tgt"))
    return record, src, tgt


def write_export_record(folder: Path, record: ExportRecord) -> None:
    """Write the record, with the checksums of all files that are in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != RECORD)
    checksums = {path.relative_to(folder).as_posix(): sha256(path) for path in files}
    content = {"format_version": _FORMAT_VERSION, **asdict(replace(record, checksums=checksums))}
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def record_of(loaded: "LoadedModel", target: str, run_name: str, precision: ExportPrecision) -> ExportRecord:
    """The record of a converted model."""
    return ExportRecord(
        **vars(loaded.facts),
        mt_version=__version__,
        target=target,
        run=run_name,
        precision=precision,
        weights=loaded.checkpoint.checksums["model.safetensors"],
    )
