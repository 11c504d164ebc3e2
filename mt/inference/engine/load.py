"""Finds the engine of a checkpoint, converts the checkpoint if there is none yet, and opens it."""

import contextlib
import ctypes
import importlib.util
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ctranslate2

from mt.errors import CheckpointError, EngineError
from mt.files import read_text, remove_folder_atomically
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine, cpu_has_int8
from mt.inference.engines import Sentence
from mt.inference.exported_folder import REFUSED, open_exported, weights_of
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory

if TYPE_CHECKING:
    import torch

    from mt.device import PrecisionName
    from mt.inference.model_translator import ModelTranslator

LOG = logging.getLogger(__name__)


def load_converted(run: RunDirectory, checkpoint: str, **options: Any) -> Translator:
    """Load the engine of a checkpoint with the options of `load_exported`; it may be converted first."""
    # A checkpoint that cannot be read is explained when it is converted.
    folder = run.engine_dir / (weights_of(run, checkpoint) or "none")
    if folder.exists():
        try:
            return load_exported(folder, **options)
        except CheckpointError as error:
            LOG.warning("the fast engine is made again: %s", error)
            remove_folder_atomically(folder)
    if run.lock_owner() is not None:
        raise EngineError("the run is being trained, and its checkpoints change")
    if importlib.util.find_spec("torch") is None:
        raise CheckpointError(
            f"{checkpoint} of {run.path} was not yet converted for translating without torch. Translate "
            "a sentence with it once where torch is installed, and copy the run again."
        )
    from mt.inference.engine.convert import convert

    return load_exported(convert(run, checkpoint), **options)


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
    if (folder / REFUSED).exists():
        raise EngineError(read_text(folder / REFUSED, max_bytes=100_000))
    if (folder / "float32").is_dir():
        may_be_int8 = kind == "cpu" and precision in ("auto", "int8") and (folder / "int8").is_dir()
        folder /= "int8" if may_be_int8 and cpu_has_int8() else "float32"
    record, *tokenizers = open_exported(folder)
    try:
        if kind == "cuda":
            _load_cublas()
        engine = CTranslate2Engine(folder, *tokenizers, device=kind, precision=precision)
        if kind == "cuda":
            # The first product loads the libraries of CUDA 12, which are not those of torch.
            engine.attention([Sentence(1, [])])
    # These are its only errors; that the files are sound was verified.
    except (RuntimeError, ValueError, MemoryError) as error:
        remedy = " Use --device cpu." if kind == "cuda" else ""
        raise EngineError(f"CTranslate2 cannot compute on {kind}: {error}.{remedy}") from error
    return Translator(engine, record, *tokenizers, dictionary=dictionary, load_model=load_model)


def _load_cublas() -> None:
    """Load cuBLAS of CUDA 12 from its wheel, if that is installed: CTranslate2 opens it by its name."""
    with contextlib.suppress(ModuleNotFoundError, OSError):
        wheel = importlib.util.find_spec("nvidia.cublas.lib")
        for folder in (wheel and wheel.submodule_search_locations) or ():
            for name in ("libcublasLt.so.12", "libcublas.so.12"):
                ctypes.CDLL(f"{folder}/{name}", mode=ctypes.RTLD_GLOBAL)
