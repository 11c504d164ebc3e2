"""Linear layers whose matrix products by oneDNN have few different shapes.

On a CPU, bf16 is multiplied by oneDNN, and so is float32 where `onednn_is_faster`. It compiles a
kernel for each new shape of a product, which takes ten times as long as the product itself, and caches a
thousand kernels of megabytes each. Batches have a thousand shapes. Therefore rows of zeros are appended, so
that only a few different numbers of rows occur.

Bias and ReLU are part of these products. torch copies the bias to each row of the result before it
multiplies, and applies ReLU afterwards. For 4,096 rows from 256 to 1,024 columns in bf16, that takes 4.4
milliseconds on one core, while oneDNN takes 1.8 for all three.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_FEWEST_ROWS = 32
# How many bf16 numbers fit into the second-level cache of a core.
_CACHED = 2**20


OFF_BY_LESS = {torch.bfloat16: 0.25, torch.float32: 1e-4}
"""A sum of 64 products of random numbers is off by less than this, because bf16 has 8 bits and float32 24."""


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, x: Tensor, *, relu: bool = False) -> Tensor:
        """``(..., in_features)`` -> ``(..., out_features)``, then ReLU if requested."""
        return linear(x, self.weight, self.bias, relu=relu)

    def first_outputs(self, x: Tensor, number: int) -> Tensor:
        """``(..., in_features)`` -> ``(..., number)``, without computing the other outputs."""
        return linear(x, self.weight[:number], None if self.bias is None else self.bias[:number])


def project_together(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Apply several linear layers to ``x`` in one wide product, which is faster than one product each."""
    weight = torch.cat([layer.weight for layer in layers])
    has_bias = layers[0].bias is not None
    bias = torch.cat([layer.bias for layer in layers]) if has_bias else None
    return linear(x, weight, bias).chunk(len(layers), dim=-1)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """Compute ``x @ weight.t() + bias``, like `torch.nn.functional.linear`, then ReLU if requested."""
    dtype = onednn_dtype(x)
    if dtype is not None:
        return onednn_linear(x, weight, bias, dtype, relu=relu)
    y = F.linear(x, weight, bias)
    return F.relu(y) if relu else y


def onednn_dtype(x: Tensor) -> torch.dtype | None:
    """Return the type in which oneDNN multiplies ``x``; None if torch decides how to multiply it."""
    if x.device.type != "cpu":
        return None
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
    elif torch.compiler.is_compiling():
        # The compiler chooses how to multiply in float32, for any number of rows.
        return None
    else:
        dtype = x.dtype
    return dtype if _takes_onednn(dtype) else None


def onednn_is_faster(dtype: torch.dtype) -> bool:
    """Whether this CPU multiplies faster with oneDNN than with torch's other library, MKL.

    It does in bf16. In float32, MKL has AVX-512 kernels for Intel's processors only. On AMD's it uses AVX2,
    which is half as fast on Zen 5 and three quarters as fast on Zen 4.
    """
    if dtype != torch.float32:
        return dtype == torch.bfloat16
    return "AMD" in torch.cpu.get_capabilities().get("cpu_name", "") and torch.cpu.get_capabilities().get(
        "avx512_f", False
    )


def _takes_onednn(dtype: torch.dtype) -> bool:
    # In bf16, torch itself calls oneDNN.
    return onednn_is_faster(dtype) and (dtype == torch.bfloat16 or onednn_multiplies(dtype))


def is_cpu_autocast(x: Tensor) -> bool:
    """Return whether products with ``x`` are computed on a CPU in mixed precision."""
    return x.device.type == "cpu" and torch.is_autocast_enabled("cpu")


# Tensor cores read rows of this many values at once, and products are slower if the rows of a matrix have
# another size (NVIDIA, Matrix Multiplication Background User's Guide, section 2.1.1).
OUTPUTS_TOGETHER = {"cuda": 8}


def pad_outputs(weight: Tensor) -> Tensor:
    """Add zero outputs to a weight ``(out, in)``, up to a number that its device is fast with."""
    num_added = -len(weight) % OUTPUTS_TOGETHER.get(weight.device.type, 1)
    return F.pad(weight, (0, 0, 0, num_added)) if num_added else weight


def pad_rows(x: Tensor) -> Tensor:
    """Flatten ``(..., D)`` to ``(N, D)`` with rows of zeros if oneDNN multiplies; else return ``x``."""
    dtype = onednn_dtype(x)
    if dtype is None:
        return x
    rows = x.flatten(0, -2)
    if rows.dtype == dtype and len(rows) == padded_length(len(rows)):
        return rows
    return _PadRows.apply(rows, dtype)  # type: ignore[no-untyped-call, no-any-return]


def on_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a function of rows to ``(..., D)``, whose rows are padded once for all of its products."""
    rows = function(pad_rows(x))
    if onednn_dtype(x) is None:
        return rows
    return rows[: x.numel() // x.size(-1)].view(*x.shape[:-1], rows.size(-1))


class _PadRows(torch.autograd.Function):
    """Cast to ``dtype`` and append rows of zeros in one pass instead of two."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """``(N, D)`` -> ``(N', D)`` in ``dtype``, where the rows from N on are zero."""
        ctx.num_rows, ctx.dtype = len(rows), rows.dtype
        return as_rows(rows, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0][: ctx.num_rows].to(ctx.dtype), None


def padded_length(number: int, fewest: int = _FEWEST_ROWS) -> int:
    """Round up to a multiple of an eighth of the next lower power of two, or of ``fewest`` if more."""
    unit = max(fewest, 1 << number.bit_length() >> 4)
    return max(1, -(-number // unit)) * unit


def as_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Flatten ``(..., D)`` to ``(N, D)`` in ``dtype``, and append rows of zeros up to `padded_length`."""
    rows = x.flatten(0, -2)
    length = padded_length(len(rows))
    if rows.dtype == dtype and len(rows) == length:
        return rows
    # Cast and appended in one pass instead of two.
    result = rows.new_empty(length, rows.size(1), dtype=dtype)
    result[: len(rows)] = rows
    result[len(rows) :] = 0
    return result


def onednn_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, relu: bool = False
) -> Tensor:
    """``x @ weight.t() + bias`` in ``dtype``, then ReLU if requested: ``(..., D)`` -> ``(..., E)``."""
    return _OneDnnProduct.apply(x, weight, bias, dtype, relu)  # type: ignore[no-untyped-call, no-any-return]


class _OneDnnProduct(torch.autograd.Function):
    """oneDNN's product with its derivative, which torch does not define."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, relu: bool
    ) -> Tensor:
        """Multiply ``(..., D)`` by the transpose of the weight ``(E, D)``: ``(..., E)`` in ``dtype``."""
        rows, weight_dtype = as_rows(x, dtype), weight.dtype
        weight = weight.to(dtype)
        y = _multiply(rows, weight, None if bias is None else bias.to(dtype), relu)
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
        gradient = as_rows(gradients[0], rows.dtype)
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
    if a.dtype == torch.float32 and a.device.type == "cpu" and _takes_onednn(a.dtype):
        return _onednn(a, b.t(), None, relu=False)
    return a @ b


def projection(weight: Tensor, num_rows: int) -> Callable[[Tensor], Tensor]:
    """Prepare ``x @ weight.t()`` for several ``x`` of ``num_rows`` rows.

    oneDNN would bring the weight into its own layout for each of them, which takes as long as a sixth of a
    product of 524 x 256 x 8,000 in float32.
    """
    if weight.device.type == "cpu" and _takes_onednn(weight.dtype) and onednn_multiplies(weight.dtype):
        packed = _reorder(weight, num_rows)
        return lambda x: _onednn(x, packed, None, relu=False)
    return lambda x: x @ weight.t()


def transposed_product(gradient: Tensor, rows: Tensor) -> Tensor:
    """Compute ``gradient.t() @ rows``: ``(N, E)`` and ``(N, D)`` -> ``(E, D)``, perhaps a transposed view.

    If oneDNN transposes the wider of the two itself, that takes longer than the product: 27 milliseconds on
    one core in bf16 with 3,584 rows of 2,048 and 512. With a copy of the narrower one, it takes 15. In
    float32 the narrower one is the first factor, which oneDNN copies by itself.
    """
    num_outputs, num_inputs = gradient.size(1), rows.size(1)
    if gradient.device.type != "cpu":
        return gradient.t() @ rows
    if gradient.dtype == torch.float32:
        if num_inputs < num_outputs:
            return product(rows.t(), gradient).t()
        return product(gradient.t(), rows)
    if num_outputs < num_inputs:
        return gradient.t().contiguous() @ rows
    if num_inputs < num_outputs and rows.numel() > _CACHED:
        return (rows.t().contiguous() @ gradient).t()
    return gradient.t() @ rows


def _multiply(rows: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    if onednn_multiplies(rows.dtype):
        return _onednn(rows, weight, bias, relu)
    y = F.linear(rows, weight, bias)
    return y.relu_() if relu else y


def _onednn(rows: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "relu" if relu else "none", [], "")
    return y


def _reorder(weight: Tensor, num_rows: int) -> Tensor:
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, num_rows)
    return reordered


@cache
def onednn_multiplies(dtype: torch.dtype) -> bool:
    """Return whether this torch has oneDNN's product, an unstable interface, with correct results."""
    generator = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(32, 64, generator=generator).to(dtype) for _ in range(2))
    bias = weight[:, 0].contiguous()
    expected = F.linear(rows.float(), weight.float(), bias.float())
    try:
        errors = [
            _onednn(rows, weight, bias, relu=False) - expected,
            _onednn(rows, _reorder(weight, len(rows)), bias, relu=True) - expected.relu(),
        ]
    except (AttributeError, TypeError, RuntimeError):
        return False
    return all(bool((error.abs() < OFF_BY_LESS[dtype]).all()) for error in errors)
