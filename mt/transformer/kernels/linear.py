"""Linear layers whose matrix products by oneDNN have few different shapes.

On a CPU, bf16 is multiplied by oneDNN, and so is float32 where `onednn_is_faster`. It compiles a
kernel for each new shape of a product, which takes ten times as long as the product itself, and caches a
thousand kernels of megabytes each. Batches have a thousand shapes. Therefore rows of zeros are appended, so
that only a few different numbers of rows occur.

Bias and ReLU are part of these products: for 4,096 rows from 256 to 1,024 columns in bf16, torch's three
operations take 4.4 milliseconds on one core, and oneDNN's one takes 1.8.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# How many bf16 numbers fit into the second-level cache of a core.
_CACHED = 2**20


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, x: Tensor, *, relu: bool = False) -> Tensor:
        """``(..., in_features)`` -> ``(..., out_features)``, then ReLU if requested."""
        return linear(x, self.weight, self.bias, relu=relu)

    def project_first(self, x: Tensor, number: int) -> Tensor:
        """``(..., in_features)`` -> ``(..., number)``, without computing the other outputs."""
        return linear(x, self.weight[:number], None if self.bias is None else self.bias[:number])

    @staticmethod
    def project_jointly(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
        """Apply several layers to ``x`` in one wide product, which is faster than one product each."""
        weight = torch.cat([layer.weight for layer in layers])
        has_bias = layers[0].bias is not None
        bias = torch.cat([layer.bias for layer in layers]) if has_bias else None
        return linear(x, weight, bias).chunk(len(layers), dim=-1)

    @staticmethod
    def on_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Apply a function of rows to ``(..., D)``, whose rows are padded once for all of its products."""
        dtype = onednn_dtype(x)
        rows = function(pad_rows(x, dtype))
        return rows if dtype is None else rows[: x.numel() // x.size(-1)].view(*x.shape[:-1], rows.size(-1))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """Compute ``x @ weight.t() + bias``, like `torch.nn.functional.linear`, then ReLU if requested."""
    dtype = onednn_dtype(x)
    if dtype is not None:
        return _OneDnnProduct.apply(x, weight, bias, dtype, relu)  # type: ignore[no-untyped-call, no-any-return]
    y = F.linear(x, weight, bias)
    return F.relu(y) if relu else y


def onednn_dtype(x: Tensor) -> torch.dtype | None:
    """Return the type in which oneDNN multiplies ``x``; None if torch decides how to multiply it."""
    if x.device.type != "cpu":
        return None
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    return dtype if onednn_is_faster(dtype) and onednn_multiplies(dtype) else None


def onednn_is_faster(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies faster with oneDNN than with torch's other library, MKL.

    It does in bf16. In float32, MKL has AVX-512 kernels for Intel's processors only. On AMD's it uses AVX2,
    which is half as fast on Zen 5 and three quarters as fast on Zen 4.
    """
    if dtype != torch.float32:
        return dtype == torch.bfloat16
    cpu = torch.cpu.get_capabilities()
    return "AMD" in cpu.get("cpu_name", "") and cpu.get("avx512_f", False)


@cache
def onednn_multiplies(dtype: torch.dtype) -> bool:
    """Return whether this torch, on this processor, has oneDNN's product, which is an unstable interface."""
    ones = torch.ones(32, 64, dtype=dtype)
    try:
        return bool(_onednn(ones, ones).eq(64).all())
    except (AttributeError, TypeError, RuntimeError):
        return False


def is_cpu_autocast(x: Tensor) -> bool:
    """Return whether products with ``x`` are computed on a CPU in mixed precision."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")


def pad_rows(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Flatten ``(..., D)`` to ``(N, D)`` in ``dtype`` with rows of zeros; None returns ``x`` as it is."""
    if dtype is None:
        return x
    rows = x.flatten(0, -2).to(dtype)
    # A multiple of an eighth of the next lower power of two, and of 32: of 100 rows 128, of 1,000 1,024.
    unit = max(32, 1 << len(rows).bit_length() >> 4)
    num_added = -len(rows) % unit if len(rows) else unit
    return F.pad(rows, (0, 0, 0, num_added)) if num_added else rows


class _OneDnnProduct(torch.autograd.Function):
    """oneDNN's product with its derivative, which torch does not define."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, relu: bool
    ) -> Tensor:
        """Multiply ``(..., D)`` by the transpose of the weight ``(E, D)``: ``(..., E)`` in ``dtype``."""
        rows, weight_dtype = pad_rows(x, dtype), weight.dtype
        weight = weight.to(dtype)
        y = _onednn(rows, weight, None if bias is None else bias.to(dtype), relu=relu)
        ctx.x_shape, ctx.dtypes, ctx.has_bias = x.shape, (x.dtype, weight_dtype), bias is not None
        ctx.save_for_backward(rows, weight, y if relu else None)
        return y[: x.numel() // x.size(-1)].view(*x.shape[:-1], y.size(-1))

    @staticmethod
    def backward(
        ctx: Any, *gradients: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        """Return the gradients of ``x``, weight and bias, each in its own type, from that of the output."""
        rows, weight, y = ctx.saved_tensors
        x_dtype, weight_dtype = ctx.dtypes
        needs_x, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        gradient = pad_rows(gradients[0], rows.dtype)
        if y is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, y, 0)
        num_rows = ctx.x_shape.numel() // ctx.x_shape[-1]
        return (
            product(gradient, weight)[:num_rows].to(x_dtype).view(ctx.x_shape) if needs_x else None,
            transposed_product(gradient, rows).contiguous().to(weight_dtype) if needs_weight else None,
            gradient.sum(0).to(weight_dtype) if ctx.has_bias and needs_bias else None,
            None,
            None,
        )


def product(a: Tensor, b: Tensor) -> Tensor:
    """Compute ``a @ b`` for two matrices of one type with the faster library."""
    if a.device.type == "cpu" and onednn_is_faster(a.dtype) and onednn_multiplies(a.dtype):
        return _onednn(a, b.t())
    return a @ b


def transposed_product(gradient: Tensor, rows: Tensor) -> Tensor:
    """Compute ``gradient.t() @ rows``: ``(N, E)`` and ``(N, D)`` -> ``(E, D)``, perhaps a transposed view.

    If oneDNN transposes the wider of the two itself, that takes longer than the product: 27 milliseconds on
    one core in bf16 with 3,584 rows of 2,048 and 512. With a copy of the narrower one, it takes 15. In
    float32 the narrower one is the first factor, which oneDNN copies by itself.
    """
    num_outputs, num_inputs, is_cpu = gradient.size(1), rows.size(1), gradient.device.type == "cpu"
    if is_cpu and gradient.dtype == torch.float32 and num_inputs < num_outputs:
        return product(rows.t(), gradient).t()
    if is_cpu and gradient.dtype != torch.float32:
        if num_outputs < num_inputs:
            return gradient.t().contiguous() @ rows
        if num_inputs < num_outputs and rows.numel() > _CACHED:
            return (rows.t().contiguous() @ gradient).t()
        return gradient.t() @ rows
    return product(gradient.t(), rows)


def _onednn(rows: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "relu" if relu else "none", [], "")
    return y
