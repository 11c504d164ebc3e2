"""The building blocks of encoder and decoder layers: sub-layers of one shape, in residual connections."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from mt.transformer import kernels
from mt.transformer.attention import MultiHeadAttention
from mt.transformer.feed_forward import Activation, FeedForward


class Residual(nn.Module):
    """A residual connection around a sub-layer, with dropout and layer norm (sections 3.1 and 5.4).

    Post-norm, as in the paper, is ``LayerNorm(x + Sublayer(x))``; pre-norm is ``x + Sublayer(LayerNorm(x))``,
    which keeps the residual path free of norms and training more stable (Xiong et al. 2020), but needs one
    more norm at the top of the stack.
    """

    def __init__(self, d_model: int, *, dropout: float, norm_first: bool, bias: bool = True) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.norm = nn.LayerNorm(d_model, bias=bias)
        # `of_residual` changes the type under autocast on a CPU, and nothing else.
        self.dropout = kernels.Dropout(dropout, of_residual=True)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``sublayer``, which keeps the shape, and add its input ``(B, T, D)``: ``(B, T, D)``."""
        return self.add_output(x, sublayer(self.sublayer_input(x)))

    def sublayer_input(self, x: Tensor) -> Tensor:
        """The input of the sub-layer: ``x``, which pre-norm normalises first."""
        normalised: Tensor = self.norm(x) if self.norm_first else x
        return normalised

    def add_output(self, x: Tensor, output: Tensor) -> Tensor:
        """Add the sub-layer's output to ``x``; post-norm then normalises the sum."""
        x = x + self.dropout(output)
        return x if self.norm_first else self.norm(x)


@dataclass(frozen=True)
class LayerFactory:
    """The sizes and variants that all layers share, and methods that make the sub-layers from them."""

    d_model: int
    num_heads: int
    d_ff: int
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: Activation = "relu"
    norm_first: bool = True
    bias: bool = True

    def attention(self) -> MultiHeadAttention:
        """Make a multi-head attention module of this shape (section 3.2)."""
        return MultiHeadAttention(
            self.d_model, self.num_heads, dropout=self.attention_dropout, bias=self.bias
        )

    def feed_forward(self) -> FeedForward:
        """Make a feed-forward network of this shape (section 3.3)."""
        return FeedForward(
            self.d_model,
            self.d_ff,
            activation=self.activation,
            dropout=self.activation_dropout,
            bias=self.bias,
        )

    def residual(self) -> Residual:
        """Make the residual connection around a sub-layer of this shape (section 3.1)."""
        return Residual(self.d_model, dropout=self.dropout, norm_first=self.norm_first, bias=self.bias)

    def final_norm(self) -> nn.Module:
        """Make the norm at the top of a stack; with post-norm, the last layer already ends with one."""
        return nn.LayerNorm(self.d_model, bias=self.bias) if self.norm_first else nn.Identity()
