"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, section 3.2)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.transformer import kernels


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
    """Compute ``softmax(Q K^T / sqrt(d_k)) V`` (equation 1), with dropout on the weights; d_k is K below.

    From ``(B, H, Tq, K)`` queries and ``(B, H, Tk, K)`` keys and values: ``(B, H, Tq, K)``. Models call
    the faster `kernels.attention`.
    """
    weights = attention_weights(query, key, mask)
    return F.dropout(weights, dropout) @ value


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """Compute ``softmax(Q K^T / sqrt(d_k))``: how much each query attends to each key.

    ``(B, H, Tq, Tk)``, where each row sums to 1, except that a row without any key to attend to is all zeros.
    The mask is boolean, or None if all attend to all.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is None:
        return scores.softmax(-1)
    return mask_scores(scores, mask).softmax(-1).masked_fill(~mask, 0.0)


def mask_scores(scores: Tensor, mask: Tensor) -> Tensor:
    """Replace scores where the boolean mask is False, so that their softmax is 0.

    By the lowest finite number, not minus infinity, so that a row without any key is uniform instead of NaN.
    """
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


class ScaledDotProductAttention(nn.Module):
    """`attention` as a module, so that `mt.transformer.recording` can hook into it."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: kernels.Mask) -> Tensor:
        """Attend with ``(B, H, Tq, K)`` queries over ``(B, H, Tk, K)`` keys and values: ``(B, H, Tq, K)``.

        The mask is boolean, or what the kernel takes in its place: a bias, ``causal``, or None for no mask.
        """
        return kernels.attention(query, key, value, mask, self.dropout if self.training else 0.0)


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
        self.query = kernels.Linear(d_model, d_model, bias=bias)
        self.key = kernels.Linear(d_model, d_model, bias=bias)
        self.value = kernels.Linear(d_model, d_model, bias=bias)
        self.scaled_dot_product = ScaledDotProductAttention(dropout)
        self.output = kernels.Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, memory: Tensor, mask: kernels.Mask) -> Tensor:
        """Let each position of ``x`` ``(B, Tq, D)`` attend to ``memory`` ``(B, Tk, D)``, or to ``x``."""
        if memory is x:
            queries, keys, values = kernels.Linear.project_jointly(x, self.query, self.key, self.value)
        else:
            queries = self.query(x)
            keys, values = kernels.Linear.project_jointly(memory, self.key, self.value)
        return self._attend(queries, self._split(keys), self._split(values), mask)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project ``(B, Tk, D)`` to keys and values, ``(B, H, Tk, K)`` each, for `attend`."""
        return self._split(self.key(memory)), self._split(self.value(memory))

    def attend(self, x: Tensor, keys: Tensor, values: Tensor, mask: kernels.Mask) -> Tensor:
        """Compute what `forward` does, over keys and values that have been projected before."""
        return self._attend(self.query(x), keys, values, mask)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: kernels.Mask) -> Tensor:
        output: Tensor = self.output(
            join_heads(self.scaled_dot_product(self._split(queries), keys, values, mask))
        )
        return output

    def first_keys(self, memory: Tensor) -> Tensor:
        """Project ``(B, Tk, D)`` to the keys of the first head ``(B, Tk, K)``."""
        return self.key.project_first(memory, self.key.out_features // self.num_heads)

    def alignment_scores(self, x: Tensor, keys: Tensor) -> Tensor:
        """Score how well keys of the first head ``(B, Tk, K)`` match each position of ``x`` ``(B, Tq, D)``.

        For guided alignment (Chen et al. 2016), which trains this head, the first K outputs of each
        projection. The scores are those before mask and softmax, ``(B, Tq, Tk)`` in float32 or higher.
        """
        queries = self.query.project_first(x, keys.size(-1))
        # In float32 even under autocast: the product is small, and has another shape in each batch.
        with torch.autocast(x.device.type, enabled=False):
            exact = torch.promote_types(queries.dtype, torch.float32)
            return queries.to(exact) @ keys.to(exact).transpose(1, 2) / math.sqrt(keys.size(-1))

    def _split(self, x: Tensor) -> Tensor:
        return split_heads(x, self.num_heads)
