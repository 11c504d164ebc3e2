"""Scaled dot-product attention by the kernel that is fastest, forward and backward."""

import torch
from torch import Tensor
from torch.nn import functional as F

from mt.masks import Mask
from mt.transformer.kernels.linear import is_cpu_autocast


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` with one of our masks.

    Under autocast on a CPU it is in float32, whose backward pass takes a small part of the time of bf16's.
    """
    is_causal = isinstance(mask, str)
    mask = None if isinstance(mask, str) else mask
    if not (is_cpu_autocast(query) and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)
    query, key, value = query.float(), key.float(), value.float()
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)
