"""A smaller output layer for each batch, which makes the steps of a small model shorter.

A step of 3 + 1 layers of width 256 with 8,000 words takes about 0.8 of the time with an eighth of them.
"""

import math

import torch
from torch import Tensor

from mt.special_tokens import PAD_ID


def sampled_softmax(
    weight: Tensor, labels: Tensor, interval: int, *, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The output layer ``(C, D)``, ``(C,)`` of the entries that a batch compares, and its labels there.

    They are the batch's own and each ``interval``-th of the others, beginning with one that depends on the
    batch. Each of these stands for ``interval`` entries, which the bias expresses (Jean et al. 2015, section
    3.1).
    """
    is_own = torch.zeros(len(weight), dtype=torch.bool, device=weight.device)
    is_own[labels] = True
    is_own[PAD_ID] = True  # The first entry, so that padding keeps its label.
    every = torch.arange(len(weight), device=weight.device) + labels.sum()
    is_compared = is_own | (every % interval == 0)
    entries = is_compared.nonzero()[:, 0]
    corrections = math.log(interval) * (~is_own[entries]).to(weight.dtype)
    new_labels = (is_compared.cumsum(0) - 1)[labels]
    return weight[entries], corrections if bias is None else bias[entries] + corrections, new_labels
