"""Dropout (Srivastava et al. 2014) with masks that are cheap to draw on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.transformer.kernels.linear import is_cpu_autocast

_LEVELS = 2**16


class Dropout(nn.Module):
    """Zero a share ``p`` of the elements in training and scale the rest by ``1 / (1 - p)``.

    On a CPU, torch draws one random number for each element, which takes longer than any other layer. Here
    each 64-bit draw of the same generator serves four elements with 16 bits each, which rounds ``p`` to a
    multiple of 1/65536. On other devices, torch's own dropout is fast.

    That ``of_residual`` is float32 under autocast on a CPU, where each operation of a residual connection
    would convert bf16 to float32 and back, which takes longer than the operation.
    """

    def __init__(self, p: float, *, of_residual: bool = False) -> None:
        super().__init__()
        self.p = p
        self.of_residual = of_residual

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of a tensor of any shape; in evaluation mode, none."""
        if self.of_residual and is_cpu_autocast(x):
            x = x.float()
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return x * _scaled_mask(x, self.p)

    def extra_repr(self) -> str:
        """Describe the module in ``print(model)``."""
        return f"p={self.p}"


def _scaled_mask(x: Tensor, p: float) -> Tensor:
    """Zeros, and ``1 / (1 - p)`` where an element stays; shape and type of ``x``."""
    # Below 1, so that a p that rounds to 1 does not cause a division by zero.
    num_zero_levels = min(round(p * _LEVELS), _LEVELS - 1)
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)
    # Ones and zeros directly in the type of x: converting from booleans takes almost three times as long.
    stays = torch.empty(x.shape, dtype=x.dtype)
    torch.ge(levels, num_zero_levels - _LEVELS // 2, out=stays)
    return stays.mul_(_LEVELS / (_LEVELS - num_zero_levels))
