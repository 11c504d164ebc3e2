"""The feed-forward network by two products of padded rows, of which the first includes ReLU."""

from collections.abc import Callable

from torch import Tensor, nn

from mt.transformer.kernels.linear import Linear


def feed_forward(
    x: Tensor, inner: Linear, outer: Linear, activation: nn.Module, dropout: Callable[[Tensor], Tensor]
) -> Tensor:
    """The same as `mt.transformer.feed_forward.feed_forward`."""

    def transform(rows: Tensor) -> Tensor:
        is_relu = isinstance(activation, nn.ReLU)
        hidden = inner(rows, relu=True) if is_relu else activation(inner(rows))
        output: Tensor = outer(dropout(hidden))
        return output

    return Linear.on_rows(transform, x)
