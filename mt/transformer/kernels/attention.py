"""Scaled dot-product attention by the fastest kernel, forward and backward, and masks in its forms."""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from mt.masks import target_mask
from mt.transformer.kernels.linear import is_cpu_autocast

Mask = Tensor | Literal["causal"] | None
"""A boolean mask of `mt.masks`, or a form of it for this kernel: numbers to add to the scores (`as_bias`),
``causal`` for `mt.masks.causal_mask` without a tensor, None where all may attend to all."""


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
    """The same as `mt.transformer.attention.attention`, with a mask in any form.

    Under autocast on a CPU it is in float32, whose backward pass takes a small part of the time of bf16's.
    """
    is_causal = isinstance(mask, str)
    mask = None if isinstance(mask, str) else mask
    if not (is_cpu_autocast(query) and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)
    query, key, value = query.float(), key.float(), value.float()
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal)


def masks_for_kernel(
    src_mask: Tensor, tgt_ids: Tensor, *, has_src_padding: bool, dtype: torch.dtype
) -> tuple[Tensor | None, Mask]:
    """The masks of source and target in the forms with which a batch is computed fastest on its device.

    Padding follows the real tokens of a target, so with the causal mask alone they never attend to it. On
    CUDA, the fastest kernel accepts only that one, and the kernel for padded sources adds a ``dtype`` bias.
    """
    if tgt_ids.is_cuda:
        return as_bias(src_mask, dtype) if has_src_padding else None, "causal"
    return src_mask, target_mask(tgt_ids)


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A padding mask as numbers to add to the scores: 0 where it is True, minus infinity elsewhere.

    A row takes a multiple of 8 numbers of memory, so that CUDA's attention kernel reads it without a copy.
    """
    length = mask.size(-1)
    bias = torch.full((*mask.shape[:-1], length + -length % 8), -math.inf, dtype=dtype, device=mask.device)
    return bias[..., :length].masked_fill_(mask, 0.0)
