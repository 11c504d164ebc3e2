"""Attention masks: boolean, True = may attend, broadcastable to ``(B, H, Tq, Tk)``."""

import torch
from torch import Tensor

from mt.special_tokens import PAD_ID


def padding_mask(ids: Tensor) -> Tensor:
    """True where ``ids`` holds a real token: ``(B, T)`` -> ``(B, 1, 1, T)``."""
    return (ids != PAD_ID)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """True where a key is at or before its query: ``(1, 1, T, T)``, lower triangle with diagonal."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def target_mask(ids: Tensor) -> Tensor:
    """True where a key is real and not in the future (section 3.2.3): ``(B, T)`` -> ``(B, 1, T, T)``."""
    return padding_mask(ids) & causal_mask(ids.size(1), ids.device)
