"""The sub-layers that encoder and decoder layers consist of, made from one set of sizes."""

from dataclasses import dataclass

from torch import nn

from mt.transformer.attention import MultiHeadAttention
from mt.transformer.feed_forward import Activation, FeedForward
from mt.transformer.residual import Residual


@dataclass(frozen=True)
class LayerShape:
    """The sizes and variants that all layers share; its methods make the sub-layers."""

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
        """Make a multi-head attention of this shape (section 3.2)."""
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
        """Make the norm at the top of a stack; with post-norm the last layer already ends with one."""
        return nn.LayerNorm(self.d_model, bias=self.bias) if self.norm_first else nn.Identity()
