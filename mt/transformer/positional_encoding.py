"""Positions as vectors of sines and cosines (Vaswani et al. 2017, section 3.5)."""

import math

import torch
from torch import Tensor


def positional_encoding(num_positions: int, d_model: int) -> Tensor:
    """Compute ``PE(pos, 2i) = sin(pos / 10000^(2i/D))`` and ``PE(pos, 2i+1) = cos(pos / 10000^(2i/D))``.

    Args:
        num_positions: The number of positions, counted from 0.
        d_model: D, which must be even.

    Returns:
        ``(num_positions, D)``, float32.
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000.0) / d_model))
    angle = position * frequency
    # Sines and cosines alternate along the width; float64 keeps distant positions exact.
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()
