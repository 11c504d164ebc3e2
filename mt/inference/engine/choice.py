"""Which engine translates: the converted model of a checkpoint, or the reason why not."""

import contextlib
import ctypes
import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctranslate2

from mt.errors import CheckpointError, DeviceError, ExportError
from mt.files import remove_folder_atomically
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine
from mt.inference.exported_folder import find_engine, open_exported, weights_of
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory

if TYPE_CHECKING:
    import torch

    from mt.device import PrecisionName
    from mt.inference.model_translator import ModelTranslator

LOG = logging.getLogger(__name__)


def load_converted(run: RunDirectory, checkpoint: str, **options: Any) -> Translator:
    """Load the engine of a checkpoint, converted first if that was not done; an error says why it cannot be.

    The options are those of `load_exported`.
    """
    weights = weights_of(run, checkpoint)
    if weights is None:
        raise ExportError("the checkpoint cannot be read")
    folder = find_engine(run, weights)
    if folder is not None:
        try:
            return load_exported(folder, **options)
        except CheckpointError as error:
            LOG.warning("the fast engine is made again: %s", error)
            remove_folder_atomically(folder)
    if run.holder() is not None:
        raise ExportError("the run is being trained, and its checkpoints change")
    if importlib.util.find_spec("torch") is None:
        raise CheckpointError(
            f"{checkpoint} of {run.path} was not yet converted for translating without torch. Translate "
            "a sentence with it once where torch is installed, and copy the run again."
        )
    # Imported by its name, because it needs torch.
    return load_exported(import_module("mt.inference.engine.convert").convert(run, checkpoint), **options)


def load_exported(
    folder: Path,
    *,
    device: "str | torch.device" = "cpu",
    precision: "PrecisionName" = "auto",
    dictionary: Mapping[str, str] | None = None,
    load_model: "Callable[[], ModelTranslator] | None" = None,
) -> Translator:
    """Load a model that was converted for CTranslate2; the folder may have one for each precision."""
    kind = str(device).partition(":")[0]
    if kind == "auto":
        kind = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    if kind == "cuda":
        _load_cublas()
    if (folder / "float32").is_dir():
        is_int8 = kind == "cpu" and precision in ("auto", "int8") and (folder / "int8").is_dir()
        folder /= "int8" if is_int8 else "float32"
    record, *tokenizers = open_exported(folder)
    if record.target != "ctranslate2":
        raise CheckpointError(
            f"{folder} was exported for {record.target}: load it there, as its README.md shows, or export "
            "the run to ctranslate2."
        )
    try:
        engine = CTranslate2Engine(folder, *tokenizers, device=kind, precision=precision)
        if kind == "cuda":
            # The first product loads the libraries of CUDA 12, which are not those of torch.
            engine.attention([], [[]])
    except RuntimeError as error:
        raise DeviceError(f"CTranslate2 cannot compute on {kind}: {error}. Use --device cpu.") from error
    translator = Translator(engine, record, *tokenizers, dictionary=dictionary, load_model=load_model)
    translator.why = "it is an exported folder"
    return translator


def _load_cublas() -> None:
    """Load cuBLAS of CUDA 12 from its wheel, if that is installed: CTranslate2 opens it by its name."""
    with contextlib.suppress(ModuleNotFoundError, OSError):
        spec = importlib.util.find_spec("nvidia.cublas.lib")
        for folder in (spec and spec.submodule_search_locations) or ():
            for name in ("libcublasLt.so.12", "libcublas.so.12"):
                ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)  # noqa: PTH118
