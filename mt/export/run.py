"""Exporting a run: `mt export`, and `mt.export_run` from Python."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from mt.display import visible
from mt.evaluation.test_set import load_evaluation_set
from mt.export.export import Library, check_folder, export_model
from mt.inference.engine.convert import convert
from mt.inference.engine.verification import Agreement
from mt.inference.exported_folder import ExportPrecision, ExportRecord, Target
from mt.inference.loaded_model import load_model
from mt.run_directory import RunDirectory, as_run


def export_run(
    run: str | Path | RunDirectory,
    folder: str | Path,
    *,
    to: Target,
    checkpoint: str = "best",
    precision: ExportPrecision = "float32",
    data_path: str | None = None,
) -> tuple[ExportRecord, Sequence[Agreement]]:
    """Export a model for another library, verified by translating validation sentences with both.

    Args:
        run: The run directory.
        folder: The folder to write; an earlier export is replaced.
        to: ``ctranslate2`` or ``transformers``; the package of this name must be installed.
        checkpoint: best, latest, or a checkpoint's name.
        precision: That of the saved weights; int8 is for CTranslate2 only.
        data_path: Verify with the validation split of this corpus instead of the run's own.

    Returns:
        The record of the folder, and how the translations of both compare.

    Raises:
        MtError: If the run or the folder cannot be used, or the models do not translate alike.
    """
    run, folder = as_run(run).require(), Path(folder)
    library: Library = import_module(f"mt.export.{to}_model").LIBRARY
    check_folder(folder)
    loaded = load_model(run, checkpoint)
    is_converted = to == "ctranslate2" and precision == "float32" and data_path is None
    # Verified when it was made.
    converted = convert(run, checkpoint) / "float32" if is_converted else None
    sentences = load_evaluation_set(loaded.config, "validation", path=data_path, leave_out_empty=True)
    pairs = list(zip(sentences.sources, sentences.references, strict=True))
    name = visible(run.path.resolve().name)
    return export_model(loaded, name, pairs, folder, library, precision, converted)
