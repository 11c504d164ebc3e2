"""Attention masks: boolean, True = may attend, or a bias, broadcastable to ``(B, H, Tq, Tk)``."""

import math
from typing import Literal

import torch
from torch import Tensor

from mt.special_tokens import PAD_ID

Mask = Tensor | Literal["causal"] | None
"""A tensor as above; ``causal`` for `causal_mask` without a tensor; None lets all attend to all."""


def padding_mask(ids: Tensor) -> Tensor:
    """True where ``ids`` holds a real token: ``(B, T)`` -> ``(B, 1, 1, T)``."""
    return (ids != PAD_ID)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """True where a key is at or before its query: ``(1, 1, T, T)``, lower triangle with diagonal."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def target_mask(ids: Tensor) -> Tensor:
    """True where a key is real and not in the future (section 3.2.3): ``(B, T)`` -> ``(B, 1, T, T)``."""
    return padding_mask(ids) & causal_mask(ids.size(1), ids.device)


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A padding mask as numbers to add to the scores: 0 where it is True, minus infinity elsewhere.

    A row takes a multiple of 8 numbers of memory, so that CUDA's attention kernel reads it without a copy.
    """
    length = mask.size(-1)
    bias = torch.full((*mask.shape[:-1], length + -length % 8), -math.inf, dtype=dtype, device=mask.device)
    return bias[..., :length].masked_fill_(mask, 0.0)
