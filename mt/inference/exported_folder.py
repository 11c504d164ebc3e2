"""An exported folder: a model for another library, its tokenizers, and a record that describes it."""

import json
import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mt.atomic_files import write_synced
from mt.config.explain import first_complaint
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import CheckpointError
from mt.regular_files import read_bytes, sha256

RECORD = "mt_export.json"
_MAX_RECORD_BYTES = 1_000_000

Target = Literal["ctranslate2", "transformers"]
ExportPrecision = Literal["float32", "bf16", "int8"]


class ExportRecord(BaseModel):
    """The content of ``mt_export.json``: what translating with the folder needs besides its model."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    format_version: Literal[1] = 1
    mt_version: str
    target: Target
    run: str
    """The name of the run that it was exported from."""
    checkpoint: str
    src: str
    tgt: str
    """The languages, as named in the config."""
    precision: ExportPrecision
    """The precision of the weights in the folder."""
    max_length: Annotated[int, Field(ge=1)]
    """The most tokens that it reads or writes, including EOS."""
    target_ratio: Annotated[float, Field(gt=0)]
    """Target tokens per source token in the training data, for `mt.search.hypothesis.length_limit`."""
    batch_sentences: Annotated[int, Field(ge=1)]
    copied_words: bool
    """Whether the run copies unknown words, which the exported model cannot do."""
    checksums: dict[str, str]
    """SHA-256 of each file that the model is read from, by name."""


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
        return ExportRecord.model_validate_json(read_bytes(file, max_bytes=_MAX_RECORD_BYTES), strict=True)
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}.") from error
    except ValidationError as error:
        raise CheckpointError(
            f"{file} is damaged, or was written by another version of mt ({first_complaint(error)}). "
            "Export the run again."
        ) from error


def write_export_record(folder: Path, record: ExportRecord) -> None:
    """Write the record, with the checksums of all files that are in the folder."""
    checksums = {name: sha256(folder / name) for name in _files_in(folder) if name != RECORD}
    record = record.model_copy(update={"checksums": checksums})
    text = json.dumps(record.model_dump(), indent=2, ensure_ascii=False)
    write_synced(folder / RECORD, (text + "\n").encode())


def _files_in(folder: Path) -> list[str]:
    return sorted(
        Path(parent, name).relative_to(folder).as_posix()
        for parent, _, names in os.walk(folder)
        for name in names
    )
