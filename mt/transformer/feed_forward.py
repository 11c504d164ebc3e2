"""The position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from mt.transformer import kernels

Activation = Literal["relu", "gelu", "swish"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "swish": nn.SiLU}


def feed_forward(
    x: Tensor,
    inner: nn.Linear,
    outer: nn.Linear,
    activation: nn.Module,
    dropout: Callable[[Tensor], Tensor],
) -> Tensor:
    """Compute ``max(0, x W1 + b1) W2 + b2`` (equation 2), with any activation, and dropout after it.

    Each position of ``(B, T, D)`` is transformed by itself. Models call the
    faster `kernels.feed_forward`.
    """
    output: Tensor = outer(dropout(activation(inner(x))))
    return output


class FeedForward(nn.Module):
    """The two linear layers of `feed_forward`, and what is between them."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.inner = kernels.Linear(d_model, d_ff, bias=bias)
        self.outer = kernels.Linear(d_ff, d_model, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = kernels.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of ``(B, T, D)``; the shape stays the same."""
        return kernels.feed_forward(x, self.inner, self.outer, self.activation, self.dropout)
