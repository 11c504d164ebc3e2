"""The device that a model runs on: its choice, its precision, its memory, and running out of memory."""

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from mt.errors import DeviceError

SearchPrecision = Literal["float32", "bf16", "fp16", "int8"]
"""The precision of matrix products in translating and scoring."""
PrecisionName = Literal["auto"] | SearchPrecision
"""A precision, or ``auto`` for the one that `choose_search_precision` selects."""

Work = TypeVar("Work")
Result = TypeVar("Result")

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8

# What Linux says of the memory of this process and of the machine.
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_MEMINFO = Path("/proc/meminfo")
_OWN_GROUP, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def choose_device(name: str | torch.device) -> torch.device:
    """The device of that name; ``auto`` selects CUDA, else Apple's MPS, else the CPU."""
    device = name if isinstance(name, torch.device) else _find_device(name)
    if device.type == "cuda":
        avoid_cudnn_attention()
    return device


def _find_device(name: str) -> torch.device:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [device for device, is_there in there.items() if is_there]
    if name == "auto":
        return torch.device(usable[0])
    if name not in usable:
        raise DeviceError(f"this machine has no usable device {name!r}. Choose auto or {', '.join(usable)}.")
    return torch.device(name)


def avoid_cudnn_attention() -> None:
    """Let torch's other kernels compute attention on CUDA, in this process.

    On GPUs since Hopper, torch prefers cuDNN's in 16 bits. It spends tens of milliseconds on a plan for each
    new shape, which nearly every batch and every step of a search has.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def bf16_instructions() -> list[str]:
    """The names of this CPU's instructions that multiply in bf16."""
    names = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512 BF16"}
    return [name for capability, name in names.items() if _capabilities().get(capability, False)]


def onednn_is_faster(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies faster with oneDNN than with torch's other library, MKL.

    It does in bf16. In float32, MKL has AVX-512 kernels for Intel's processors only. On AMD's it uses AVX2,
    which is half as fast on Zen 5 and three quarters as fast on Zen 4.
    """
    if dtype != torch.float32:
        return dtype == torch.bfloat16
    return is_amd() and _capabilities().get("avx512_f", False)


def is_amd() -> bool:
    """Whether this CPU is AMD's; False if torch cannot tell."""
    return "AMD" in _capabilities().get("cpu_name", "")


def attention_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The data type in which search computes attention between layers of type ``dtype``.

    Without AMX, torch's CPU kernel takes three times as long in bf16 as in float32.
    """
    has_amx = _capabilities().get("amx_bf16", False)
    return torch.float32 if device.type == "cpu" and dtype == torch.bfloat16 and not has_amx else dtype


def _capabilities() -> dict[str, Any]:
    # Older versions of torch do not report them.
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return found


def multiplies_bf16_fast(device: torch.device) -> bool:
    """Whether bf16 speeds up matrix products: on GPUs since Ampere, and on CPUs with AMX or AVX-512 BF16."""
    if device.type == "cpu":
        return bool(bf16_instructions())
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def fastest_precision(device: torch.device) -> Literal["float32", "bf16", "fp16"]:
    """The precision that ``auto`` selects: bf16 where it is fast, fp16 on other GPUs with tensor cores.

    These are NVIDIA's since Volta; on older ones fp16 is slower than float32, or hardly faster.
    """
    if multiplies_bf16_fast(device):
        return "bf16"
    has_tensor_cores = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)
    return "fp16" if has_tensor_cores else "float32"


def choose_search_precision(name: PrecisionName, device: torch.device) -> SearchPrecision:
    """The precision of that name; ``auto`` selects 16 bits where that is faster, and never 8."""
    if name == "auto":
        return fastest_precision(device)
    need = _unmet_need(name, device)
    if need is not None:
        raise DeviceError(f"precision {name} needs {need}. Use another precision, such as --precision auto.")
    return name


def _unmet_need(name: SearchPrecision, device: torch.device) -> str | None:
    """What this precision needs and the device is not, or ``None`` if the device is suitable."""
    match name:
        case "float32":
            return None
        case "bf16":
            need = "a GPU of NVIDIA's Ampere generation or a later one, or a CPU with AMX or AVX-512 BF16"
            is_suitable = multiplies_bf16_fast(device)
        case "fp16":
            need, is_suitable = "a CUDA device", device.type == "cuda"
        case "int8":
            need, is_suitable = "a CPU", device.type == "cpu"
        case _:
            raise ValueError(f"precision must be auto, float32, bf16, fp16 or int8, not {name!r}")
    return None if is_suitable else f"{need}, which this device ({device.type}) is not"


def overflow_remedy(precision: SearchPrecision) -> str:
    """What to do about logits that are NaN or infinite in this precision: only fp16 has a smaller range."""
    if precision == "fp16":
        return "Compute in float32 with --precision float32."
    return "Use another checkpoint with --checkpoint NAME."


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether this error says that a tensor did not fit into the memory of a device.

    CUDA's allocator in torch raises its own exception class; the driver, cuBLAS, the CPU, MPS and CTranslate2
    only have a message.
    """
    texts = (
        "CUDA error: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "DefaultCPUAllocator: can't allocate memory",
        "MPS backend out of memory",
        "Invalid buffer size",
        # More bytes than can be addressed.
        "Storage size calculation overflowed",
        # CTranslate2's, on CUDA and on the CPU.
        "CUDA failed with error out of memory",
        "failed to allocate memory",
    )
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in texts)


def split_on_out_of_memory(
    compute: Callable[[Work], Result], work: Work, split: Callable[[Work], Sequence[Work]]
) -> list[Result]:
    """``[compute(work)]``, or the results of its parts, in order, if it does not fit into memory.

    Args:
        compute: Computes one piece of work.
        work: What to compute.
        split: Returns smaller parts of work that did not fit, or raises an error if there are none.
    """
    try:
        return [compute(work)]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    # Outside the handler, because the error keeps the tensors of all frames that it passed through alive.
    return [result for part in split(work) for result in split_on_out_of_memory(compute, part, split)]


class DeferredRead:
    """Numbers that are being copied from a device to the host, which need not wait for them yet.

    On CUDA they are copied as soon as they are computed, whatever is launched after them.
    """

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers.to("cpu", non_blocking=numbers.is_cuda)
        self._copied = torch.cuda.Event() if numbers.is_cuda else None  # type: ignore[no-untyped-call]
        if self._copied is not None:
            self._copied.record()

    def wait(self) -> list[float]:
        """The numbers, once they have arrived."""
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None
        found: list[float] = self._numbers.tolist()
        return found


class Precision:
    """The precision of training: float32, or mixed with bf16 or fp16 (Micikevicius et al. 2018).

    For fp16 the loss is scaled, which keeps small gradients from underflowing to zero.
    """

    def __init__(
        self,
        name: Literal["auto", "float32", "bf16", "fp16"],
        device: torch.device,
        *,
        tf32: bool = False,
    ) -> None:
        """Choose the precision; ``auto`` selects bf16, else fp16, where that is faster than float32.

        With ``tf32``, float32 products of this process on CUDA are computed in TF32 if the GPU supports it.
        """
        self.is_automatic = name == "auto"
        if name == "auto":
            name = fastest_precision(device)
        need = _unmet_need(name, device)
        if need is not None:
            raise DeviceError(f"training.precision: {name} needs {need}. Set training.precision=auto.")
        self.name = name
        self.device = device
        self._dtype = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")
        if device.type == "cuda":
            # Torch sets this for the whole process. Setting only the newer name would contradict the old one,
            # which torch.compile reads.
            torch.backends.cuda.matmul.allow_tf32 = tf32

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which the forward pass and the loss are computed."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self._dtype)


def keep_freed_memory() -> None:
    """Let this process keep freed memory for later allocations; call it before the first step.

    Each step frees hundreds of megabytes and allocates them again. The C library returns large blocks to the
    system, which has to zero each page that it hands out: 3 to 7 % of the time on a CPU. Without glibc this
    has no effect.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
        # Threads reuse what others have freed only in the same arena; by default there are eight per core.
        mallopt(_M_ARENA_MAX, os.cpu_count() or 1)


def free_memory(device: torch.device) -> int | None:
    """Free bytes on this device; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    limits = _field(_MEMINFO, "MemAvailable"), _left_by_memory_limits()
    return min((free for free in limits if free is not None), default=None)


def taken_memory(device: torch.device) -> int | None:
    """Bytes in use: by tensors on CUDA, by the whole process on the CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return _field(_STATUS, "VmRSS") if device.type == "cpu" else None


def peak_memory(device: torch.device) -> int | None:
    """The most bytes in use since `forget_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _field(_STATUS, "VmHWM") if device.type == "cpu" else None


def forget_peak(device: torch.device) -> bool:
    """Reset the peak; return whether that is possible here."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        # Linux: 5 sets the peak to what is in use now (man 5 proc).
        _CLEAR.write_text("5")
    except OSError:
        return False
    return device.type == "cpu"


def _left_by_memory_limits() -> int | None:
    """Bytes that the limits of a container or a batch job leave to this process; None if there are none.

    They are those of Linux's control groups, version 2, of which a limit that cannot be read counts as none.
    """
    try:
        own = re.search(r"^0::/(.*)$", _OWN_GROUP.read_text(), re.MULTILINE)
    except OSError:
        return None
    group = Path(own[1] if own else "")
    left = []
    # The groups above may have limits too. In a container, the path may be the one on its host.
    for folder in (group, *group.parents):
        # ValueError: "max" is no limit.
        with suppress(OSError, ValueError, KeyError):
            most, taken, figures = (
                (_GROUPS / folder / f"memory.{name}").read_text() for name in ("max", "current", "stat")
            )
            figure = dict(line.split() for line in figures.splitlines())
            # What is cached of files is freed when memory is needed.
            cached = int(figure["active_file"]) + int(figure["inactive_file"])
            left.append(max(0, int(most) - int(taken) + cached))
    return min(left, default=None)


def _field(file: Path, name: str) -> int | None:
    """A line such as ``VmRSS:  12345 kB`` of a file in ``/proc``, in bytes."""
    try:
        match = re.search(rf"^{name}:\s+(\d+) kB$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None
