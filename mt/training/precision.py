"""In which numbers a step computes: float32, or mixed with bf16 or fp16 (Micikevicius et al. 2018)."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from mt.device import multiplies_bf16_fast
from mt.errors import DeviceError


class Precision:
    """Autocasting, and for fp16 the scaling of the loss that keeps small gradients from vanishing."""

    def __init__(self, name: Literal["auto", "float32", "bf16", "fp16"], device: torch.device) -> None:
        """Choose the numbers; ``auto`` takes bf16 where it is faster than float32.

        Raises:
            DeviceError: If mixed precision is asked for on a device that only gets slower by it.
        """
        if name == "auto":
            name = "bf16" if multiplies_bf16_fast(device) else "float32"
        if name == "fp16" and device.type != "cuda":
            raise DeviceError(
                f"training.precision: fp16 needs a CUDA device, and this run trains on {device.type}. "
                "Set training.precision=auto, in a new --run or with --restart."
            )
        if name == "bf16" and not multiplies_bf16_fast(device):
            raise DeviceError(
                "training.precision: bf16 needs a GPU of NVIDIA's Ampere generation or a later one, or a CPU "
                f"with AMX, and this run trains on {device.type} without it. Set training.precision=auto, in "
                "a new --run or with --restart."
            )
        self.name = name
        self._device = device
        self._dtype = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which the forward pass and the loss are computed."""
        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._dtype)
