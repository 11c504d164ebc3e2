"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, section 3.2)."""

import math

import torch
from torch import Tensor, nn

from mt.masks import Mask
from mt.transformer.kernels.attention import scaled_dot_product_attention
from mt.transformer.kernels.linear import Linear


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """Compute ``softmax(Q K^T / sqrt(K))`` (section 3.2.1): how much each query attends to each key.

    From ``(B, H, Tq, K)`` and ``(B, H, Tk, K)``: ``(B, H, Tq, Tk)``. Each row sums to 1, except that a row
    without any key to attend to is all zeros. The mask is boolean, or None if all attend to all.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is None:
        return scores.softmax(-1)
    # The lowest finite number, not -inf, so that a row without any key does not become NaN; then exact zeros.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(~mask, 0.0)


class ScaledDotProductAttention(nn.Module):
    """Equation 1 of the paper by a fused kernel, and dropout on the attention weights.

    It is a module so that `mt.transformer.recording` can hook into it.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
        """Attend with ``(B, H, Tq, K)`` queries over ``(B, H, Tk, K)`` keys and values: ``(B, H, Tq, K)``.

        ``mask`` is as in `mt.masks`.
        """
        return scaled_dot_product_attention(query, key, value, mask, self.dropout if self.training else 0.0)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(B, T, D)`` -> ``(B, H, T, K)``, where ``D = H * K``."""
    batch, length, d_model = x.shape
    return x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """``(B, H, T, K)`` -> ``(B, T, D)``, the inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(2)


class MultiHeadAttention(nn.Module):
    """H attention heads in parallel, each in a slice of the model's width (section 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = Linear(d_model, d_model, bias=bias)
        self.key = Linear(d_model, d_model, bias=bias)
        self.value = Linear(d_model, d_model, bias=bias)
        self.scaled_dot_product = ScaledDotProductAttention(dropout)
        self.output = Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        """Let each position of ``x`` ``(B, Tq, D)`` attend to ``memory`` ``(B, Tk, D)``, perhaps itself."""
        if memory is x:
            queries, keys, values = Linear.together(x, self.query, self.key, self.value)
        else:
            queries = self.query(x)
            keys, values = Linear.together(memory, self.key, self.value)
        return self._attend(queries, self._split(keys), self._split(values), mask)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project ``(B, Tk, D)`` to keys and values, ``(B, H, Tk, K)`` each, for `attend`."""
        return self._split(self.key(memory)), self._split(self.value(memory))

    def attend(self, x: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        """Compute what `forward` does, over keys and values that have been projected before."""
        return self._attend(self.query(x), keys, values, mask)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask) -> Tensor:
        output: Tensor = self.output(
            join_heads(self.scaled_dot_product(self._split(queries), keys, values, mask))
        )
        return output

    def first_keys(self, memory: Tensor) -> Tensor:
        """Project ``(B, Tk, D)`` to the keys of the first head ``(B, Tk, K)``."""
        return self.key.first_outputs(memory, self.key.out_features // self.num_heads)

    def alignment_scores(self, x: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """Score how well keys of the first head ``(B, Tk, K)`` match each position of ``x`` ``(B, Tq, D)``.

        The scores are those before the softmax, ``(B, Tq, Tk)`` in float32 or higher, and the lowest finite
        number where the mask ``(B, 1, 1, Tk)`` is False, or minus infinity as a bias.
        """
        queries = self.query.first_outputs(x, keys.size(-1))
        # In float32 even under autocast: the product is small, and has another shape in each batch.
        with torch.autocast(x.device.type, enabled=False):
            exact = torch.promote_types(queries.dtype, torch.float32)
            scores = queries.to(exact) @ keys.to(exact).transpose(1, 2) / math.sqrt(keys.size(-1))
        if mask is None:
            return scores
        forbidden = ~mask[:, 0] if mask.dtype == torch.bool else mask[:, 0].isneginf()
        return scores.masked_fill(forbidden, torch.finfo(scores.dtype).min)

    def _split(self, x: Tensor) -> Tensor:
        return split_heads(x, self.num_heads)
