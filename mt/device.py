"""Where the model computes, and what it says when its memory is full."""

import torch

from mt.errors import DeviceError


def choose_device(name: str) -> torch.device:
    """The device of that name; ``auto`` takes CUDA, else Apple's MPS, else the CPU.

    Raises:
        DeviceError: If there is no such device, or not on this machine.
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [device for device, is_there in there.items() if is_there]
    if name == "auto":
        return torch.device(usable[0])
    if name not in usable:
        raise DeviceError(f"this machine has no usable device {name!r}. Choose auto or {', '.join(usable)}.")
    return torch.device(name)


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
