"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, section 3.2)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.transformer.linear import Linear, is_cpu_autocast, linear


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """How much each query looks at each key (section 3.2.1): ``softmax(Q K^T / sqrt(K))``.

    Args:
        query: ``(B, H, Tq, K)``.
        key: ``(B, H, Tk, K)``.
        mask: Boolean, True = may attend, broadcastable to ``(B, H, Tq, Tk)``; None lets all attend to all.

    Returns:
        ``(B, H, Tq, Tk)``; each row sums to 1, but a row that may see nothing is all zeros.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    if mask is None:
        return scores.softmax(-1)
    # The smallest number rather than -inf, so that a row without any key gives no NaN; then exact zeros.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(~mask, 0.0)


def plain_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Equation 1 of the paper as it stands there; torch's fused kernel computes the same, faster.

    Shapes as in `attention_weights`; ``value`` is ``(B, H, Tk, K)`` and so is the result, with Tq for Tk.
    """
    return attention_weights(query, key, mask) @ value


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """``(B, T, D)`` -> ``(B, H, T, K)``, where ``D = H * K``."""
    batch, length, d_model = x.shape
    return x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """``(B, H, T, K)`` -> ``(B, T, D)``, the inverse of `split_heads`."""
    return x.transpose(1, 2).flatten(2)


class MultiHeadAttention(nn.Module):
    """Attention in H slices of the model's width side by side (section 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.query = Linear(d_model, d_model, bias=bias)
        self.key = Linear(d_model, d_model, bias=bias)
        self.value = Linear(d_model, d_model, bias=bias)
        self.output = Linear(d_model, d_model, bias=bias)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Let each position of ``x`` gather from the positions of ``memory``.

        Args:
            x: ``(B, Tq, D)``, what asks.
            memory: ``(B, Tk, D)``, what is looked at; ``x`` itself in self-attention.
            mask: Boolean, True = may attend, broadcastable to ``(B, H, Tq, Tk)``.

        Returns:
            ``(B, Tq, D)``.
        """
        if memory is x:
            queries, keys, values = _project_at_once(x, self.query, self.key, self.value)
        else:
            queries = self.query(x)
            keys, values = _project_at_once(memory, self.key, self.value)
        return self._gather(queries, self._split(keys), self._split(values), mask)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """``(B, Tk, D)`` -> keys and values, each ``(B, H, Tk, K)``: what a cache keeps."""
        return self._split(self.key(memory)), self._split(self.value(memory))

    def attend(self, x: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """As `forward`, over keys and values that are there already."""
        return self._gather(self.query(x), keys, values, mask)

    def _gather(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """From projected queries ``(B, Tq, D)``, keys and values in heads, to the output ``(B, Tq, D)``."""
        dropout = self.dropout if self.training else 0.0
        output: Tensor = self.output(join_heads(_attend(self._split(queries), keys, values, mask, dropout)))
        return output

    def weights(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """The weights that `forward` gathers with, before dropout: ``(B, H, Tq, Tk)``."""
        keys, _ = self.keys_and_values(memory)
        return attention_weights(self._split(self.query(x)), keys, mask)

    def keys_of_first_head(self, memory: Tensor) -> Tensor:
        """``(B, Tk, D)`` -> ``(B, Tk, K)``."""
        return self._first_head(self.key, memory)

    def scores_of_first_head(self, x: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """How well each position of ``x`` fits each key in the eyes of the first head, before the softmax.

        Args:
            x: ``(B, Tq, D)``.
            keys: ``(B, Tk, K)``, those of the first head.
            mask: ``(B, 1, 1, Tk)``, True where a position may look; None lets all look at all.

        Returns:
            ``(B, Tq, Tk)``, very small where the mask is False.
        """
        queries = self._first_head(self.query, x)
        # In float32 whatever autocast says: a small product, of another shape in each batch.
        with torch.autocast(x.device.type, enabled=False):
            exact = torch.promote_types(queries.dtype, torch.float32)
            scores = queries.to(exact) @ keys.to(exact).transpose(1, 2) / math.sqrt(keys.size(-1))
        if mask is None:
            return scores
        return scores.masked_fill(~mask[:, 0], torch.finfo(scores.dtype).min)

    def _first_head(self, layer: nn.Linear, x: Tensor) -> Tensor:
        width = layer.out_features // self.num_heads
        return linear(x, layer.weight[:width], None if layer.bias is None else layer.bias[:width])

    def _split(self, x: Tensor) -> Tensor:
        return split_heads(x, self.num_heads)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """`plain_attention` by torch's fused kernel, with dropout on the weights."""
    if is_cpu_autocast(query) and torch.is_grad_enabled():
        # Backward, the CPU's kernel for bf16 takes many times as long as the one for float32.
        query, key, value = query.float(), key.float(), value.float()
        with torch.autocast("cpu", enabled=False):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def _project_at_once(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """What each of the linear layers makes of ``x``, by one wide product, which is faster than several."""
    weight = torch.cat([layer.weight for layer in layers])
    has_bias = layers[0].bias is not None
    bias = torch.cat([layer.bias for layer in layers]) if has_bias else None
    return linear(x, weight, bias).chunk(len(layers), dim=-1)
