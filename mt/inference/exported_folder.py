"""Exported folders: a model for another library, its tokenizers and a record. A run keeps its engines so."""

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mt import __version__
from mt.checkpoint.seal import sealed, unsealed
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.display import counted
from mt.errors import CheckpointError
from mt.files import locked, read_text, remove_folder_atomically, sha256
from mt.run_directory import RunDirectory
from mt.sides import SIDES

if TYPE_CHECKING:
    from mt.inference.loaded_model import LoadedModel

RECORD = "mt_export.json"
REFUSED = "refused"
"""A file in place of an engine that was made, and found not to translate as torch does; it says why."""
_MAX_RECORD_BYTES = 1_000_000
_FORMAT_VERSION = 3
_MOST_ENGINES = 2
_SHA256 = re.compile(r"[0-9a-f]{64}")

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
    abbreviations: Sequence[str] = ()
    """Words of its training sources after which a stop does not end a sentence, without that stop."""
    copies_signs: bool = False
    """Whether lines without any letter are copied, because its training text has none."""
    directions: Sequence[Sequence[str]] = ()
    """The languages from and into which it translates, if there are several such pairs."""

    @property
    def known(self) -> str:
        """Its directions in words."""
        directions = self.directions or [(self.src, self.tgt)]
        return ", ".join(f"{src} to {tgt}" for src, tgt in directions)

    @property
    def languages(self) -> list[str]:
        """The languages of which one must be chosen to translate into, if there are several."""
        languages = sorted({tgt for _, tgt in self.directions})
        return languages if len(languages) > 1 else []

    def cut_warning(self, num_lines: int) -> str:
        """What is said of lines with a sentence that was cut."""
        longer = f"longer than the {self.max_length} tokens that this model reads (data.max_length)"
        return f"sentences in {counted(num_lines, 'line')} are {longer}, and were translated in parts."


@dataclass(frozen=True, kw_only=True)
class ExportRecord(ModelFacts):
    """The content of ``mt_export.json``."""

    mt_version: str
    target: str
    run: str
    precision: str
    """The precision of the weights in the folder."""
    reserved: Sequence[str] = ()
    """The entries of the vocabularies that are neither read from text nor written, such as ``<to:de>``."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each file that the model is read from, by name."""
    format_version: int = _FORMAT_VERSION


def read_export_record(folder: Path) -> ExportRecord:
    """Read the record of an exported folder; the other files are not verified."""
    file = folder / RECORD
    try:
        record = ExportRecord(**unsealed(read_text(file, max_bytes=_MAX_RECORD_BYTES)))
        if record.format_version != _FORMAT_VERSION:
            raise ValueError(f"its format is {record.format_version}")
        return record
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{file} cannot be read, or was written by another version of mt ({error}). Export the run again."
        ) from error


def open_exported(folder: Path) -> tuple[ExportRecord, Tokenizer, Tokenizer]:
    """The record and the tokenizers of a folder for CTranslate2, all of whose files are verified."""
    record = read_export_record(folder)
    if record.target != "ctranslate2":
        raise CheckpointError(
            f"{folder} was exported for {record.target}: load it there, as its README.md shows, or export "
            "the run to ctranslate2."
        )
    for name, checksum in record.checksums.items():
        if not ((folder / name).is_file() and sha256(folder / name) == checksum):
            raise CheckpointError(
                f"{folder / name} is missing or damaged (its checksum differs). Export the run again."
            )
    src, tgt = (Tokenizer.load(folder / f"{side}_tokenizer.json") for side in SIDES)
    return record, src, tgt


def write_export_record(
    folder: Path, loaded: "LoadedModel", target: str, run_name: str, precision: str
) -> ExportRecord:
    """Write the record of a converted model, with the checksums of all files that are in the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != RECORD)
    record = ExportRecord(
        **vars(loaded.facts),
        mt_version=__version__,
        target=target,
        run=run_name,
        precision=precision,
        reserved=[*loaded.src_tokenizer.reserved | loaded.tgt_tokenizer.reserved],
        checksums={path.relative_to(folder).as_posix(): sha256(path) for path in files},
    )
    (folder / RECORD).write_text(sealed(asdict(record)), encoding="utf-8")
    return record


def weights_of(run: RunDirectory, checkpoint: str) -> str | None:
    """The SHA-256 of a checkpoint's weights by its record, read without pydantic; None if there is none."""
    with contextlib.suppress(OSError, ValueError, LookupError):
        pointer = run.checkpoints_dir / checkpoint
        name = pointer.read_text().strip() if pointer.is_file() else checkpoint
        text = read_text(run.checkpoints_dir / name / "checkpoint.json", max_bytes=_MAX_RECORD_BYTES)
        checksum = str(unsealed(text)["checksums"]["model.safetensors"])
        # It becomes the name of a folder.
        return checksum if _SHA256.fullmatch(checksum) else None
    return None


def remove_stale(run: RunDirectory) -> None:
    """Remove the engines of checkpoints that are gone, and all but the newest two of the others."""
    with contextlib.suppress(OSError), locked(run.engine_dir):
        weights = {weights_of(run, path.name) for path in run.checkpoints_dir.iterdir()}
        engines = [path for path in run.engine_dir.iterdir() if _SHA256.fullmatch(path.name)]
        engines.sort(key=lambda path: (path.name in weights, path.stat().st_mtime))
        for position, engine in enumerate(reversed(engines)):
            if position >= _MOST_ENGINES or engine.name not in weights:
                remove_folder_atomically(engine)
