"""Linear layers for search, whose weights are packed once for fast products.

Only this file and `linear` use unstable interfaces of torch, here oneDNN's packed weights and the product of
8-bit integers. Each is tried once and compared with `torch.nn.functional.linear`; if it fails, plain products
of the same precision are used instead.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.device import SearchPrecision, onednn_is_faster
from mt.transformer.feed_forward import Activation
from mt.transformer.linear import OFF_BY_LESS, pad_outputs, padded_length

ACTIVATION_DTYPES = {
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.float32,
}
"""The type of the values that the layers pass on to each other."""

_FEWEST_STEADY_ROWS = 1024
"""From this many rows on, a float32 product gives a row the same bits whatever their number. With fewer, up
to 256 on two cores, MKL uses other kernels; oneDNN only does for a single row."""
_FEW_ROWS = 64
"""Up to this many rows, products take nearly the same time whatever their number."""
_ROWS_IN_HALVES = 16
"""Up to this many rows, two threads are faster with half of the outputs each. MKL leaves such a product to
one thread, or divides it badly, and most of the work is to read the weights."""

_TRIED_ROWS, _TRIED_WIDTH = 32, 64
# The errors of an interface that is missing, has other arguments, or does not work on this processor.
_NOT_THERE = (AttributeError, TypeError, RuntimeError)


class PackedLinear(Protocol):
    """A linear layer, or several on the same input side by side, with an optional activation."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """``(N, in)`` -> ``(N, out)``, plus ``residual`` ``(N, out)``, which may be overwritten."""


def pack(
    precision: SearchPrecision, *layers: nn.Linear, activation: Activation | None = None
) -> PackedLinear:
    """Pack linear layers that read the same input as one, whose outputs are side by side."""
    with torch.no_grad():
        weight = torch.cat([layer.weight for layer in layers]) if layers[1:] else layers[0].weight
        has_bias = layers[0].bias is not None
        bias = torch.cat([layer.bias for layer in layers]) if has_bias else None
        if precision == "int8":
            return _Int8Linear(weight, bias, activation)
        dtype = ACTIVATION_DTYPES[precision]
        if weight.device.type == "cpu" and onednn_is_faster(dtype) and onednn_packs(dtype):
            return _OneDnnLinear(weight.to(dtype), None if bias is None else bias.to(dtype), activation)
        return _PlainLinear(weight.to(dtype), None if bias is None else bias.to(dtype), activation)


def compiles_rows(precision: SearchPrecision, device: torch.device) -> bool:
    """Return whether packed products are compiled by oneDNN, with a kernel for each number of rows.

    Those of 8-bit integers are not, although their rows are passed in float32.
    """
    return device.type == "cpu" and precision != "int8" and onednn_is_faster(ACTIVATION_DTYPES[precision])


_ACTIVATIONS: dict[Activation | None, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": F.gelu,
    None: lambda x: x,
}


class _PlainLinear:
    """Torch's own product, in the type of the weights."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None:
        # With contiguous output columns, products of few rows take a quarter less time.
        padded = pad_outputs(weight)
        self._num_added = len(padded) - len(weight)
        self._weight = padded.t().contiguous()
        self._bias = bias if bias is None or not self._num_added else F.pad(bias, (0, self._num_added))
        self._halves: tuple[Tensor, Tensor] | None = None
        if weight.dtype == torch.float32 and weight.device.type == "cpu" and len(padded) % 2 == 0:
            width, bias = len(padded), self._weight.new_zeros(1) if self._bias is None else self._bias
            weights = self._weight.view(-1, 2, width // 2).transpose(0, 1)
            self._halves = weights, bias.expand(width).view(2, 1, -1)
        self._activate = None if activation is None else _ACTIVATIONS[activation]

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self._halves is not None and len(x) <= _ROWS_IN_HALVES and torch.get_num_threads() > 1:
            weights, bias = self._halves
            y = torch.baddbmm(bias, x.expand(2, -1, -1), weights).transpose(0, 1).reshape(len(x), -1)
        else:
            y = x @ self._weight if self._bias is None else torch.addmm(self._bias, x, self._weight)
        if self._num_added:
            y = y[:, : -self._num_added]
        if self._activate is not None:
            y = self._activate(y)
        return y if residual is None else y.add_(residual)


class _OneDnnLinear:
    """A product with weights in oneDNN's layout; bias, activation and residual in one pass."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, _TRIED_ROWS)
        self._bias = bias
        self._post = activation or "none"
        # For a single row, oneDNN's preparations take longer than torch's product in float32.
        self._lone = _PlainLinear(weight, bias, activation) if weight.dtype == torch.float32 else None
        self._linear: Any = torch.ops.mkldnn._linear_pointwise.default
        self._linear_plus: Any = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if self._lone is not None and len(x) == 1:
            return self._lone(x, residual)
        y: Tensor
        if residual is None:
            # The last argument selects the exact formula for GELU.
            y = self._linear(x, self._weight, self._bias, self._post, [], "none")
        else:
            y = self._linear_plus(x, residual, self._weight, self._bias, "add")
        return y


@cache
def onednn_packs(dtype: torch.dtype) -> bool:
    """Return whether this torch can multiply with packed weights of this type, with correct results."""
    generator = torch.Generator().manual_seed(0)
    x, weight, residual = (
        torch.randn(rows, _TRIED_WIDTH, generator=generator).to(dtype)
        for rows in (_TRIED_ROWS, _TRIED_WIDTH, _TRIED_ROWS)
    )
    expected = F.linear(x.float(), weight.float(), weight[0].float())
    try:
        packed = _OneDnnLinear(weight, weight[0], None)
        found = packed(x) - expected, packed(x, residual) - (expected + residual.float())
        activated = _OneDnnLinear(weight, weight[0], "relu")(x) - expected.relu()
    except _NOT_THERE:
        return False
    return all(bool((error.abs() < OFF_BY_LESS[dtype]).all()) for error in (*found, activated))


class _Int8Linear:
    """A product of 8-bit integers: a scale for each row of the weights, and for each row of the input.

    No row's scale depends on other rows, and integer sums are exact, so the result for a sentence does not
    depend on its neighbours or on the machine.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation | None) -> None:
        scale = weight.float().abs().amax(-1, keepdim=True).clamp_(min=1e-12) / 127
        self._weight = (weight / scale).round_().to(torch.int8).t()
        self._scale, self._bias = scale[:, 0], bias
        self._activate = None if activation is None else _ACTIVATIONS[activation]
        self._multiply: Any = torch._int_mm if multiplies_int8() else _multiply_exactly

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        scale = torch.linalg.vector_norm(x, torch.inf, -1, keepdim=True).clamp_(min=1e-12).mul_(1 / 127)
        sums = self._multiply((x / scale).round_().to(torch.int8), self._weight)
        y: Tensor = sums * scale
        y.mul_(self._scale)
        if self._bias is not None:
            y.add_(self._bias)
        if self._activate is not None:
            y = self._activate(y)
        return y if residual is None else y.add_(residual)


@cache
def multiplies_int8() -> bool:
    """Return whether this torch can multiply matrices of 8-bit integers on the CPU, with correct results."""
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(-127, 128, (rows, _TRIED_WIDTH), generator=generator, dtype=torch.int8)
        for rows in (_TRIED_ROWS, _TRIED_WIDTH)
    )
    try:
        return bool(torch._int_mm(a, b.t()).equal(_multiply_exactly(a, b.t())))
    except _NOT_THERE:
        return False


def _multiply_exactly(a: Tensor, b: Tensor) -> Tensor:
    """The product of integer matrices, in floating-point numbers that represent each sum exactly."""
    return (a.double() @ b.double()).to(torch.int32)


class RealRows:
    """The real positions of a batch ``(B, T)`` as rows; all positions on a GPU and in small batches.

    Attention needs sentences of one length, but products do not: a quarter of the positions in batches of
    sorted sentences is padding, and half if lengths are rounded up.
    """

    def __init__(self, mask: Tensor, *, is_rounded: bool, is_compiled: bool) -> None:
        """Find the real positions.

        Args:
            mask: ``(B, T)``, True where a position is real.
            is_rounded: Whether products round their inputs; then a row's bits never depend on their number.
            is_compiled: Whether products are compiled for each number of rows (`compiles_rows`).
        """
        self._num_positions, self._is_compiled = mask.numel(), is_compiled
        self._places: Tensor | None = None
        # This would have to wait for a GPU.
        if mask.device.type != "cpu":
            return
        flat = mask.flatten()
        places = flat.nonzero()[:, 0]
        number = len(places)
        if number == len(flat) or (number < _FEWEST_STEADY_ROWS and not is_rounded):
            return
        self._places = places
        # At padding, any finite numbers will do: here those of the last real position before it.
        self._row_of_position = flat.cumsum(0) - 1

    def take(self, positions: Tensor) -> Tensor:
        """``(B * T, D)`` -> the rows of real positions ``(N, D)``; others follow if compiled."""
        if self._places is None:
            return padded(positions, self._num_rows(len(positions)))
        number = len(self._places)
        return positions.index_select(0, F.pad(self._places, (0, self._num_rows(number) - number)))

    def spread(self, rows: Tensor) -> Tensor:
        """Undo `take`: ``(N, D)`` -> ``(B * T, D)``, with finite numbers at padding."""
        if self._places is None:
            return rows[: self._num_positions]
        return rows.index_select(0, self._row_of_position)

    def _num_rows(self, number: int) -> int:
        return padded_length(number) if self._is_compiled else number


def padded(rows: Tensor, length: int) -> Tensor:
    """Append rows of zeros to ``(N, D)``: ``(length, D)``."""
    return rows if len(rows) == length else F.pad(rows, (0, 0, 0, length - len(rows)))


def step_length(number: int) -> int:
    """Round the rows of a decoding step up to one of a few numbers.

    Up to 64 these are powers of two; above, there are eight of them from one power of two to the next.
    """
    return 1 << (number - 1).bit_length() if number <= _FEW_ROWS else padded_length(number, fewest=1)
