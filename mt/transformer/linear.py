"""Linear layers whose matrix products in bf16 on a CPU have few different shapes.

For bf16 on a CPU, oneDNN compiles a kernel for each new shape of a product, which takes ten times as long as
the product itself, and caches a thousand kernels of megabytes each. Batches have a thousand shapes. Therefore
rows of zeros are appended until the number of rows is one of a few.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.transformer.bf16_product import bf16_linear, padded, padded_length


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in_features)`` -> ``(..., out_features)``."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """Compute ``x @ weight.t() + bias``, as `torch.nn.functional.linear` does, then ReLU if asked for."""
    if is_cpu_autocast(x) and torch.get_autocast_dtype("cpu") == torch.bfloat16:
        return bf16_linear(x, weight, bias, relu=relu)
    y = unpad_rows(F.linear(pad_rows(x), weight, bias), x)
    return F.relu(y) if relu else y


def is_cpu_autocast(x: Tensor) -> bool:
    """Return whether products with ``x`` are computed on a CPU in mixed precision."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")


def pad_rows(x: Tensor) -> Tensor:
    """Flatten ``(..., D)`` to ``(N, D)`` with rows of zeros under CPU autocast; else return ``x``."""
    if not is_cpu_autocast(x):
        return x
    dtype, rows = torch.get_autocast_dtype("cpu"), x.flatten(0, -2)
    if rows.dtype == dtype and len(rows) == padded_length(len(rows)):
        return rows
    return _PadRows.apply(rows, dtype)  # type: ignore[no-untyped-call, no-any-return]


def unpad_rows(rows: Tensor, like: Tensor) -> Tensor:
    """Give a result ``(N, E)`` of ``pad_rows(like)`` the shape of ``like`` ``(..., D)``: ``(..., E)``."""
    if not is_cpu_autocast(like):
        return rows
    return rows[: like.numel() // like.size(-1)].view(*like.shape[:-1], rows.size(-1))


class _PadRows(torch.autograd.Function):
    """Cast to ``dtype`` and append rows of zeros in one pass instead of two."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """``(N, D)`` -> ``(N', D)`` in ``dtype``, where the rows from N on are zeros."""
        ctx.num_rows, ctx.dtype = len(rows), rows.dtype
        return padded(rows, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][: ctx.num_rows].to(ctx.dtype), None
