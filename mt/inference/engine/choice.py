"""Which engine translates: the converted model of a checkpoint, found or made, or the reason why not."""

import contextlib
import ctypes
import importlib.util
import logging
import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import ctranslate2

from mt.errors import CheckpointError, DeviceError
from mt.files import remove_folder_atomically
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine
from mt.inference.engine.places import REFUSED, find_engine, weights_of
from mt.inference.exported_folder import ExportedFolder
from mt.run_directory import RunDirectory

if TYPE_CHECKING:
    from mt.device import PrecisionName

LOG = logging.getLogger(__name__)

_CUDA_TYPES = {"auto": "float16", "fp16": "float16", "bf16": "bfloat16", "float32": "float32"}


def load_engine(
    run: RunDirectory, checkpoint: str, device: str, precision: "PrecisionName"
) -> tuple[CTranslate2Engine, ExportedFolder] | str:
    """Load the engine of a checkpoint, which is converted first if that was not done.

    Returns:
        The engine and its folder; or why torch has to translate, in a few words.
    """
    if device.partition(":")[0] not in ("auto", "cpu", "cuda"):
        return f"CTranslate2 does not compute on {device}"
    if precision == "bf16" and device == "cpu":
        return "CTranslate2 has no bf16 on a CPU"
    weights = weights_of(run, checkpoint)
    if weights is None:
        return "the checkpoint cannot be read"
    folder = find_engine(run, weights)
    if folder is not None:
        try:
            return _open(folder, device, precision)
        except CheckpointError as error:
            LOG.warning("the fast engine is made again: %s", error)
            with contextlib.suppress(OSError):
                remove_folder_atomically(folder)
    if run.holder() is not None:
        return "the run is being trained, and its checkpoints change"
    return _open(_convert(run, checkpoint), device, precision)


def _open(
    folder: Path, device: str, precision: "PrecisionName"
) -> tuple[CTranslate2Engine, ExportedFolder] | str:
    if (folder / REFUSED).exists():
        return (folder / REFUSED).read_text(encoding="utf-8")
    try:
        return open_engine(folder, device, precision, why="it is the fastest and was verified")
    except DeviceError as error:
        return str(error).removesuffix(".")


def _convert(run: RunDirectory, checkpoint: str) -> Path:
    if importlib.util.find_spec("torch") is None:
        raise CheckpointError(
            f"{checkpoint} of {run.path} was not yet converted for translating without torch. Translate a "
            "sentence with it once where torch is installed, and copy the run again."
        )
    # Imported by its name, because it needs torch.
    made: Path = import_module("mt.inference.engine.convert").convert(run, checkpoint)
    return made


def open_engine(
    folder: Path, device: str, precision: "PrecisionName", *, why: str
) -> tuple[CTranslate2Engine, ExportedFolder]:
    """Load a converted model: an exported folder, or one with a folder for each precision."""
    if precision not in (*_CUDA_TYPES, "int8"):
        raise ValueError(f"precision must be auto, float32, bf16, fp16 or int8, not {precision!r}")
    kind = _usable_device(device)
    chosen, compute_type = folder, "default"
    if kind == "cuda":
        compute_type = "int8_float16" if precision == "int8" else _CUDA_TYPES[precision]
    elif precision in ("fp16", "bf16"):
        raise DeviceError(
            f"CTranslate2 needs a CUDA device to compute in {precision}. Use another precision, such as "
            "--precision auto."
        )
    elif precision != "auto":
        compute_type = precision
    has_torch = (folder / "float32").is_dir()
    if has_torch:
        has_int8 = (folder / "int8").is_dir() and kind == "cpu" and precision in ("auto", "int8")
        chosen = folder / ("int8" if has_int8 else "float32")
    opened = ExportedFolder.open(chosen)
    if opened.record.target != "ctranslate2":
        raise CheckpointError(
            f"{folder} was exported for {opened.record.target}: load it there, as its README.md shows, or "
            "export the run to ctranslate2."
        )
    names = [each.tokens(range(each.size)) for each in opened.tokenizers()]
    engine = CTranslate2Engine(
        chosen,
        *names,
        device=kind,
        compute_type=compute_type,
        # Nothing else could copy for an exported folder.
        copies_well=opened.record.copies_well or not has_torch,
        why=why,
    )
    if kind == "cuda" and (problem := engine.why_unusable()):
        raise DeviceError(f"CTranslate2 cannot compute on the GPU: {problem}. Use --device cpu.")
    return engine, opened


def _usable_device(name: str) -> Literal["cpu", "cuda"]:
    """The kind of device for a name; ``auto`` is CUDA where there is one."""
    name = name.partition(":")[0]
    if name not in ("auto", "cpu", "cuda"):
        raise DeviceError(f"CTranslate2 computes on cpu or cuda, not on {name}. Use --device cpu.")
    if name == "cpu" or ctranslate2.get_cuda_device_count() == 0:
        if name == "cuda":
            raise DeviceError("CTranslate2 finds no CUDA device here. Use --device cpu.")
        return "cpu"
    _load_cublas()
    return "cuda"


def _load_cublas() -> None:
    """Load cuBLAS of CUDA 12 from its wheel, if that is installed: CTranslate2 opens it by its name."""
    found = importlib.util.find_spec("nvidia.cublas.lib") if importlib.util.find_spec("nvidia") else None
    for folder in found.submodule_search_locations or () if found else ():
        for name in ("libcublasLt.so.12", "libcublas.so.12"):
            with contextlib.suppress(OSError):
                ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)  # noqa: PTH118
