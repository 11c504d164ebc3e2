"""The work of `mt export`: write a folder, verify it as it is on disk, describe it, put it in place."""

import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mt.errors import CheckpointError, ConfigError, ExportError
from mt.export.model_card import model_card
from mt.export.target import ExportTarget
from mt.files import is_utf8, make_folder, new_folder
from mt.inference.engine.verification import STRATEGIES, Agreement, Verifier
from mt.inference.exported_folder import (
    RECORD,
    ExportPrecision,
    ExportRecord,
    read_export_record,
    record_of,
    write_export_record,
)
from mt.inference.loaded_model import LoadedModel

LOG = logging.getLogger(__name__)

EXAMPLE, CARD = "example.py", "README.md"


@dataclass(frozen=True)
class Exported:
    """An exported and verified folder."""

    folder: Path
    record: ExportRecord
    agreements: Sequence[Agreement]


@torch.inference_mode()
def export_model(
    loaded: LoadedModel,
    folder: Path,
    target: ExportTarget,
    *,
    run_name: str,
    precision: ExportPrecision,
    sources: Sequence[str],
    references: Sequence[str],
    converted: Path | None = None,
) -> Exported:
    """Export a loaded model; the folder appears whole and verified, or not at all.

    An earlier export is replaced.

    Args:
        loaded: The model, on the CPU.
        folder: The folder to write; it must not exist, unless it is an earlier export.
        target: The library to export to.
        run_name: The name of the run, for the record.
        precision: The precision of the weights.
        sources: Validation sentences.
        references: Their translations.
        converted: A folder for that library that was verified with these sentences, to be copied.
    """
    refuse_other_folder(folder)
    if precision not in target.precisions:
        raise ConfigError(
            f"a model for {target.name} cannot be saved in {precision}, only in "
            f"{' or '.join(target.precisions)}."
        )
    place = _without_links(folder)
    make_folder(place.parent)
    with new_folder(place) as partial:
        if converted is not None:
            shutil.copytree(converted, partial, dirs_exist_ok=True)
            record = read_export_record(partial)
            agreements = [Agreement.from_json(each) for each in record.verified.get("agreements", ())]
        else:
            target.write(
                loaded.model,
                loaded.config.model,
                loaded.src_tokenizer,
                loaded.tgt_tokenizer,
                partial,
                max_length=loaded.config.data.max_length,
                precision=precision,
            )
            record = record_of(loaded, target.name, run_name, precision)
            write_export_record(partial, record)
            agreements = _verify(loaded, partial, target, sources, references, exact=precision == "float32")
        (partial / EXAMPLE).write_text(target.example, encoding="utf-8")
        (partial / CARD).write_text(model_card(record, target, agreements), encoding="utf-8")
        # Verifying takes a while, and something else may have appeared there in the meantime.
        refuse_other_folder(folder)
    return Exported(folder, record, agreements)


def refuse_other_folder(folder: Path) -> None:
    """Check that only an earlier export would be replaced, and that other programs can open the folder."""
    if folder.exists() or folder.is_symlink():
        _refuse_other_files(folder)
    place = _without_links(folder)
    if not is_utf8(place):
        raise ConfigError(
            f"the name {place} is not UTF-8, so other programs could not open it: choose another name."
        )


def _without_links(folder: Path) -> Path:
    # Path.resolve raises a RuntimeError for links in a circle, where creating the folder is an OSError.
    return Path(os.path.realpath(folder))


def _refuse_other_files(folder: Path) -> None:
    """Check that a folder contains nothing but the files of an earlier export, whatever is in them now."""
    try:
        record = read_export_record(folder)
    except CheckpointError as error:
        raise ConfigError(
            f"{folder} exists and is not an earlier export, so it is not replaced: name another folder."
        ) from error
    files = {folder / name for name in (RECORD, EXAMPLE, CARD, *record.checksums)}
    written = files.union(*(file.parents for file in files))
    # macOS adds a file of its own to folders that were looked at.
    others = sorted(path for path in folder.rglob("*") if path not in written and path.name != ".DS_Store")
    if others:
        raise ConfigError(
            f"{others[0]} is not part of the earlier export in {folder}, which is therefore not replaced: "
            "move it elsewhere, or name another folder."
        )


def _verify(
    loaded: LoadedModel,
    folder: Path,
    target: ExportTarget,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    exact: bool,
) -> list[Agreement]:
    if not sources:
        raise ExportError("there are no validation sentences to verify the export with.")
    verifier = Verifier(loaded, sources, references)
    exported = target.load(folder)
    LOG.info("verifying with %d validation sentences", len(sources))
    return [verifier.compare(exported, name, strategy, exact=exact) for name, strategy in STRATEGIES.items()]
