"""The device that the model computes on, and running out of its memory."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from mt.errors import DeviceError

Work = TypeVar("Work")
Result = TypeVar("Result")

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def choose_device(name: str | torch.device) -> torch.device:
    """The device of that name; ``auto`` takes CUDA, else Apple's MPS, else the CPU.

    Raises:
        DeviceError: If there is no such device, or not on this machine.
    """
    if isinstance(name, torch.device):
        return name
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [device for device, is_there in there.items() if is_there]
    if name == "auto":
        return torch.device(usable[0])
    if name not in usable:
        raise DeviceError(f"this machine has no usable device {name!r}. Choose auto or {', '.join(usable)}.")
    return torch.device(name)


def multiplies_bf16_fast(device: torch.device) -> bool:
    """Whether matrix products gain by bf16 there: on GPUs since Ampere and on CPUs with AMX."""
    if device.type == "cpu":
        # Older versions of torch do not tell.
        capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        return bool(capabilities.get("amx_bf16", False))
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether this error says that a tensor did not fit into the memory of a device.

    CUDA's allocator has a class for it; the driver, cuBLAS, the CPU and MPS have a text alone.
    """
    texts = (
        "CUDA error: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "DefaultCPUAllocator: can't allocate memory",
        "MPS backend out of memory",
    )
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in texts)


def unless_out_of_memory(compute: Callable[[], Result]) -> Result | None:
    """What ``compute`` returns; None where it does not fit into the memory of a device.

    By then the error is gone, which holds on to the tensors of the frames that it came through.
    """
    try:
        return compute()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None


def split_on_out_of_memory(
    compute: Callable[[Work], Result], work: Work, split: Callable[[Work], Sequence[Work]]
) -> list[Result]:
    """``[compute(work)]``, or the results of its parts, in order, where it does not fit into memory.

    Args:
        compute: Returns anything but None.
        work: What to compute.
        split: Gives smaller parts of what did not fit, or raises where there are none.
    """
    result = unless_out_of_memory(lambda: compute(work))
    if result is not None:
        return [result]
    return [each for part in split(work) for each in split_on_out_of_memory(compute, part, split)]


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, for what it asks for next; call it before the work.

    Each step frees hundreds of megabytes and asks for them again. The C library gives large pieces back to
    the system, which has to zero each page that it hands out: 3 to 7 % of the time on a CPU. Nothing happens
    where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, -1)
