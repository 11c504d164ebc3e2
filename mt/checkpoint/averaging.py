"""The mean of several checkpoints' weights, which translates better than the last of them."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


def mean_of(models: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight (Vaswani et al. 2017, section 6.1), in the type that it has.

    Args:
        models: Weights by name, looked at one after another, so that two are in memory at a time.

    Raises:
        ValueError: If there are none, or names or shapes differ.
    """
    sums: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    number = 0
    for weights in models:
        if not number:
            types = {name: weight.dtype for name, weight in weights.items()}
            sums = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
        number += 1
        if {name: sum_.shape for name, sum_ in sums.items()} != {n: w.shape for n, w in weights.items()}:
            raise ValueError("their weights have other names or shapes")
        for name, weight in weights.items():
            sums[name] += weight
    if not number:
        raise ValueError("there are none")
    return {name: (sum_ / number).to(types[name]) for name, sum_ in sums.items()}
