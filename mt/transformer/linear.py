"""Linear layers whose products in bf16 on a CPU have few different shapes.

There oneDNN compiles a program for each new shape of a product, which takes ten times as long as the product
itself, and keeps a thousand of them, of megabytes each. Batches come in a thousand shapes. So rows of zeros
are added here until their number is a round one.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_FEWEST_ROWS = 32


class Linear(nn.Linear):
    """torch's own, by way of `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """``(..., in_features)`` -> ``(..., out_features)``."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x @ weight.t() + bias``, as `torch.nn.functional.linear`."""
    if not rounds_rows(x):
        return F.linear(x, weight, bias)
    product: Tensor = _RoundLinear.apply(round_rows(x), weight, bias)  # type: ignore[no-untyped-call]
    return unround_rows(product, x)


def rounds_rows(x: Tensor) -> bool:
    """Whether products with ``x`` are of the kind that gains by it."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")


def round_rows(x: Tensor) -> Tensor:
    """``(..., D)`` -> ``(N, D)`` of the type of products, N rounded up, with zeros below; or ``x`` itself."""
    if not rounds_rows(x):
        return x
    dtype, rows = torch.get_autocast_dtype("cpu"), x.flatten(0, -2)
    if rows.dtype == dtype and len(rows) == _round_number(len(rows)):
        return rows
    return _RoundRows.apply(rows, dtype)  # type: ignore[no-untyped-call, no-any-return]


def unround_rows(rows: Tensor, like: Tensor) -> Tensor:
    """``(N, E)`` -> ``(..., E)``: what was made of ``round_rows(like)``, in the shape of ``like``."""
    if not rounds_rows(like):
        return rows
    return rows[: like.numel() // like.size(-1)].view(*like.shape[:-1], rows.size(-1))


def _round_number(number: int) -> int:
    """The next of eight numbers between each power of two and the one after it."""
    unit = max(_FEWEST_ROWS, 1 << (number.bit_length() - 1) >> 3)
    return -(-number // unit) * unit


class _RoundRows(torch.autograd.Function):
    """A copy in ``dtype`` with rows of zeros below."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.num_rows, ctx.dtype = len(rows), rows.dtype
        padded = rows.new_empty(_round_number(len(rows)), rows.size(1), dtype=dtype)
        padded[: len(rows)] = rows
        padded[len(rows) :] = 0
        return padded

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][: ctx.num_rows].to(ctx.dtype), None


class _RoundLinear(torch.autograd.Function):
    """`torch.nn.functional.linear` of round rows, with products in their type."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        low_weight = weight.to(rows.dtype)
        ctx.save_for_backward(rows, low_weight)
        ctx.dtypes = weight.dtype, None if bias is None else bias.dtype
        if bias is None:
            return rows @ low_weight.t()
        return torch.addmm(bias.to(rows.dtype), rows, low_weight.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        wants_rows, wants_weight, wants_bias = ctx.needs_input_grad
        weight_dtype, bias_dtype = ctx.dtypes
        (gradient,) = gradients
        return (
            gradient @ weight if wants_rows else None,
            (gradient.t() @ rows).to(weight_dtype) if wants_weight else None,
            gradient.sum(0).to(bias_dtype) if wants_bias else None,
        )
