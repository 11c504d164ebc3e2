"""Where the model computes."""

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
