"""An exported folder: a model for another library, its tokenizers, and a record that describes it."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

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
class ExportRecord:
    """The content of ``mt_export.json``: what translating with the folder needs besides its model."""

    mt_version: str
    target: str
    run: str
    """The name of the run that it was exported from."""
    checkpoint: str
    src: str
    tgt: str
    """The languages, as named in the config."""
    precision: str
    """The precision of the weights in the folder."""
    max_length: int
    """The most tokens that it reads or writes, including EOS."""
    target_ratio: float
    """Target tokens per source token in the training data, for `mt.search.hypothesis.length_limit`."""
    copies_words: bool
    """Whether the run copies unknown words."""
    copies_well: bool = True
    """Whether it still does with this folder."""
    weights: str = ""
    """SHA-256 of the checkpoint's weights."""
    made_from: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the files of the run that it depends on besides the weights, by name."""
    verified: Mapping[str, Any] = field(default_factory=dict)
    """How it was compared with torch: versions, processor, sentences and scores."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file that the model is read from, by name."""

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read a record that somebody else may have written; ValueError says what is wrong with it."""
        read = json.loads(content)
        if not isinstance(read, dict) or read.pop("format_version", None) != _FORMAT_VERSION:
            raise ValueError("it has another format")
        kinds = {"str": str, "int": int, "float": float, "bool": bool}
        for each in fields(cls):
            kind = kinds.get(str(each.type), kinds.get(getattr(each.type, "__name__", ""), dict))
            if each.name in read and type(read[each.name]) is not kind:
                raise ValueError(f"{each.name} is not of its kind")
        try:
            record = cls(**read)
        except TypeError as error:
            raise ValueError(str(error)) from error
        if record.target not in get_args(Target) or record.precision not in get_args(ExportPrecision):
            raise ValueError("its target or precision is unknown")
        if record.max_length < 1 or not 0 < record.target_ratio < math.inf:
            raise ValueError("its lengths are impossible")
        return record


class ExportedFolder:
    """The files of an exported model, each verified by its checksum."""

    def __init__(self, path: Path, record: ExportRecord) -> None:
        self.path = path
        self.record = record

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the record, and verify all files."""
        record = read_export_record(path)
        for name, checksum in record.checksums.items():
            try:
                # A record that somebody else wrote must not make us read files outside the folder.
                found = None if Path(name).is_absolute() or ".." in Path(name).parts else sha256(path / name)
            except (OSError, ValueError):  # The latter for a name with a NUL.
                found = None
            if found != checksum:
                raise CheckpointError(
                    f"{path / name} is missing or damaged (its checksum differs). Export the run again."
                )
        return cls(path, record)

    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """Load the tokenizers of source and target."""
        src, tgt = (Tokenizer.load(self.path / f"{side}_tokenizer.json") for side in ("src", "tgt"))
        return src, tgt


def is_exported(path: Path) -> bool:
    """Return whether a folder was written by an export."""
    return (path / RECORD).is_file()


def read_export_record(folder: Path) -> ExportRecord:
    """Read the record of an exported folder; the other files are verified by `ExportedFolder.open`."""
    file = folder / RECORD
    try:
        return ExportRecord.from_json(read_bytes(file, max_bytes=_MAX_RECORD_BYTES))
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file} is damaged, or was written by another version of mt ({error}). Export the run again."
        ) from error


def write_export_record(folder: Path, record: ExportRecord) -> None:
    """Write the record, with the checksums of all files that are in the folder."""
    checksums = {name: sha256(folder / name) for name in _files_in(folder) if name != RECORD}
    content = {"format_version": _FORMAT_VERSION, **asdict(replace(record, checksums=checksums))}
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def _files_in(folder: Path) -> list[str]:
    return sorted(
        Path(parent, name).relative_to(folder).as_posix()
        for parent, _, names in os.walk(folder)
        for name in names
    )


def record_of(loaded: "LoadedModel", target: str, run_name: str, precision: ExportPrecision) -> ExportRecord:
    """The record of a converted model."""
    config = loaded.config
    return ExportRecord(
        mt_version=__version__,
        target=target,
        run=run_name,
        checkpoint=loaded.checkpoint.name,
        src=config.data.src,
        tgt=config.data.tgt,
        precision=precision,
        max_length=config.data.max_length,
        target_ratio=loaded.target_ratio,
        copies_words=config.copies_words,
        weights=loaded.checkpoint.checksums["model.safetensors"],
    )
