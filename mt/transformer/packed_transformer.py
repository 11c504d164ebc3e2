"""A Transformer for search: weights packed once, few and large operations, one token at a time.

`PackedTransformer` computes the same as `mt.transformer.transformer.Transformer` in evaluation mode; tests
compare its cached steps with the plain model, which decodes all positions at once and is the one to train, to
read, and to inspect.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.device import SearchPrecision, attention_dtype
from mt.transformer.attention import MultiHeadAttention
from mt.transformer.bag_cache import BagCache, sums_rows_fast
from mt.transformer.decoder import DecoderLayer
from mt.transformer.embedding import PositionalEmbedding, longer_table
from mt.transformer.encoder import EncoderLayer
from mt.transformer.feed_forward import Activation, FeedForward
from mt.transformer.layer import Residual
from mt.transformer.linear import padded_length
from mt.transformer.packed_cache import KernelCache, KeysAndValues, PackedCache, attend
from mt.transformer.packed_linear import (
    ACTIVATION_DTYPES,
    RealRows,
    compiles_rows,
    pack,
    padded,
    step_length,
)
from mt.transformer.transformer import Transformer

_SENTENCES_FOR_THE_KERNEL = 16
"""Up to this many sentences in float32, torch's attention kernel is faster than bags. Where results are
rounded, their number must not decide, because of the last bits."""

Attend = Callable[[Tensor], Tensor]
"""Projections ``(N, ...)`` of N positions -> what they attend to, ``(N, D)``, heads side by side."""

LENGTHENED_TO = 16
"""The number of source positions is a multiple of this if results are rounded. The attention kernel sums this
many keys at once, and its last bits depend on whether that divides their number. Because of rounding, the
same sentence could then have different translations in different batches."""


@dataclass(frozen=True)
class DecodedStep:
    """The output of one cached decoding step for R rows."""

    logits: Tensor
    """``(R, V)``, of the next token of each row."""
    alignment_scores: Tensor | None
    """``(R, S)``, as in `mt.transformer.decoder.Decoded`."""


class PackedTransformer:
    """The model for search and scoring, in one precision whatever the number of rows."""

    def __init__(self, model: Transformer, precision: SearchPrecision) -> None:
        """Pack the current weights of ``model``, on its device.

        The matrices of linear layers are copied. In float32, embeddings and norms are those of ``model``
        itself, whose weights must therefore not change while this is in use.
        """
        dtype, device = ACTIVATION_DTYPES[precision], model.output.weight.device
        self._attention_dtype = attention_dtype(dtype, device)
        self._has_bags = self._attention_dtype == torch.float32 and sums_rows_fast(device)
        self._is_rounded = precision != "float32"
        self._is_compiled = compiles_rows(precision, device)
        self._src_embedding = _Embedding(model.src_embedding, dtype)
        self._tgt_embedding = _Embedding(model.tgt_embedding, dtype)
        modules = list(model.modules())
        self._num_heads = next(each.num_heads for each in modules if isinstance(each, MultiHeadAttention))
        self._encoder = [_EncoderLayer(each, precision) for each in modules if isinstance(each, EncoderLayer)]
        self._decoder = [_DecoderLayer(each, precision) for each in modules if isinstance(each, DecoderLayer)]
        self._encoder_norm, self._decoder_norm = (
            _Norm(norm, dtype) for norm in (model.encoder.norm, model.decoder.norm)
        )
        self._output = pack(precision, model.output)

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        """Encode the source ``(B, S)`` as memory ``(B, S', D)``, where S' is S or a few positions more."""
        # Not the ids, because a source of maximum length has no position to spare.
        embedded = self._src_embedding(src_ids)
        embedded = F.pad(embedded, (0, 0, 0, self._num_missing(src_ids.size(1))))
        batch, length, _ = embedded.shape
        mask, real = self._bias(src_mask), self._real_rows(src_mask)

        def attend_to_itself(projected: Tensor) -> Tensor:
            queries, keys, values = _split(real.spread(projected), batch, 3, self._num_heads)
            return real.take(self._attend(queries, keys, values, mask))

        x = real.take(embedded.flatten(0, 1))
        for layer in self._encoder:
            x = layer(x, attend_to_itself)
        return real.spread(self._encoder_norm(x)).view(batch, length, -1)

    def start_cache(self, memory: Tensor, src_mask: Tensor, max_length: int) -> PackedCache:
        """Return an empty cache for rows of up to ``max_length`` tokens."""
        sources = self._sources(memory, src_mask)
        if self._has_bags and (self._is_rounded or len(memory) > _SENTENCES_FOR_THE_KERNEL):
            return BagCache(sources, src_mask, max_length)
        return KernelCache(sources, self._bias(src_mask), src_mask.size(-1), max_length)

    def decode_step(self, ids: Tensor, cache: PackedCache, *, with_alignment: bool = False) -> DecodedStep:
        """Decode the newest token of each row ``(R,)``; the cache grows by it."""
        x = self._tgt_embedding(ids[:, None], start=cache.length)[:, 0]
        cache.grow()
        num_rows = len(x)
        length = step_length(num_rows) if self._is_compiled else num_rows
        alignment_scores: Tensor | None = None

        def attend_to_target(number: int, projected: Tensor) -> Tensor:
            return padded(cache.attend_to_target(number, projected[:num_rows]), length)

        def attend_to_source(number: int, projected: Tensor) -> Tensor:
            nonlocal alignment_scores
            queries = projected[:num_rows]
            if with_alignment and number == len(self._decoder) - 1:
                alignment_scores = cache.alignment_scores(queries)
            return padded(cache.attend_to_source(number, queries), length)

        x = padded(x, length)
        for number, layer in enumerate(self._decoder):
            x = layer(x, partial(attend_to_target, number), partial(attend_to_source, number))
        return DecodedStep(self._output(self._decoder_norm(x))[:num_rows], alignment_scores)

    def forward(self, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor) -> Tensor:
        """Predict each next target token from the preceding ones, as `Transformer.forward`: ``(B, T, V)``."""
        batch, length = tgt_ids.shape
        num_positions = batch * length
        num_rows = padded_length(num_positions) if self._is_compiled else num_positions
        sources = self._sources(self.encode(src_ids, src_mask), src_mask)
        mask = self._bias(src_mask)

        def attend_to_target(projected: Tensor) -> Tensor:
            queries, keys, values = _split(projected[:num_positions], batch, 3, self._num_heads)
            return padded(self._attend(queries, keys, values, tgt_mask), num_rows)

        def attend_to_source(source: KeysAndValues, projected: Tensor) -> Tensor:
            [queries] = _split(projected[:num_positions], batch, 1, self._num_heads)
            return padded(self._attend(queries, *source, mask), num_rows)

        x = padded(self._tgt_embedding(tgt_ids).flatten(0, 1), num_rows)
        for layer, source in zip(self._decoder, sources, strict=True):
            x = layer(x, attend_to_target, partial(attend_to_source, source))
        return self._output(self._decoder_norm(x))[:num_positions].view(batch, length, -1)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend in the type that is faster on this device: ``(B * T, D)``."""
        dtype = self._attention_dtype
        return attend(queries, keys.to(dtype), values.to(dtype), mask).flatten(0, 1)

    def _num_missing(self, src_length: int) -> int:
        """The number of positions that are added to sources of this length."""
        return -src_length % LENGTHENED_TO if self._is_rounded else 0

    def _lengthened(self, src_mask: Tensor) -> Tensor:
        """``(B, 1, 1, S)`` -> ``(B, 1, 1, S')``, False at the positions that are added."""
        return F.pad(src_mask, (0, self._num_missing(src_mask.size(-1))))

    def _real_rows(self, src_mask: Tensor) -> RealRows:
        mask = self._lengthened(src_mask)[:, 0, 0]
        return RealRows(mask, is_rounded=self._is_rounded, is_compiled=self._is_compiled)

    def _bias(self, src_mask: Tensor) -> Tensor | None:
        """0 where ``(B, 1, 1, S)`` is True, minus infinity elsewhere, S' wide; None if all of it is True."""
        mask = self._lengthened(src_mask)
        if bool(mask.all()):
            return None
        bias = torch.zeros(mask.shape, dtype=self._attention_dtype, device=mask.device)
        return bias.masked_fill_(~mask, -torch.inf)

    def _sources(self, memory: Tensor, src_mask: Tensor) -> list[KeysAndValues]:
        """Project memory ``(B, S', D)`` to the keys and values of each layer."""
        real = self._real_rows(src_mask)
        rows = real.take(memory.flatten(0, 1))
        found = []
        for layer in self._decoder:
            projected = real.spread(layer.source(rows).to(self._attention_dtype))
            keys, values = _split(projected, len(memory), 2, self._num_heads)
            found.append((keys, values))
        return found


class _Embedding:
    """Token embedding times ``sqrt(D)``, plus the encoding of the position."""

    def __init__(self, embedding: PositionalEmbedding, dtype: torch.dtype) -> None:
        self._scale, self._max_length = embedding.scale, embedding.max_length
        self._weight = embedding.tokens.weight.detach().to(dtype)
        self._positions = self._weight.new_empty(0, self._weight.size(1))

    def __call__(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed ``(B, T)`` ids, the first of them at position ``start``, as ``(B, T, D)``."""
        end = start + ids.size(1)
        # Read once: another thread may replace it.
        table = self._positions
        if end > len(table):
            self._positions = table = longer_table(table, end, self._max_length)
        return torch.add(table[start:end], F.embedding(ids, self._weight), alpha=self._scale)


class _Norm:
    """A layer norm; the identity if the layers below end with one."""

    def __init__(self, norm: nn.Module, dtype: torch.dtype) -> None:
        self._is_there = isinstance(norm, nn.LayerNorm)
        if isinstance(norm, nn.LayerNorm):
            self._shape, self._epsilon = norm.normalized_shape, norm.eps
            # Only the CPU's kernel reads bf16 and has a gain in float32.
            kept = torch.float32 if norm.weight.device.type == "cpu" else dtype
            self._gain = norm.weight.detach().to(kept)
            self._bias = None if norm.bias is None else norm.bias.detach().to(kept)

    def __call__(self, x: Tensor) -> Tensor:
        if not self._is_there:
            return x
        return torch.layer_norm(x, self._shape, self._gain, self._bias, self._epsilon)


class _SubLayer:
    """The residual connection and the norm of a sub-layer."""

    def __init__(self, residual: Residual, precision: SearchPrecision) -> None:
        self._norm_first = residual.norm_first
        self._norm = _Norm(residual.norm, ACTIVATION_DTYPES[precision])

    def before(self, x: Tensor) -> Tensor:
        """The input of the sub-layer."""
        return self._norm(x) if self._norm_first else x

    def after(self, x: Tensor) -> Tensor:
        """The output, after the residual has been added."""
        return x if self._norm_first else self._norm(x)


class _FeedForward:
    def __init__(self, network: FeedForward, residual: Residual, precision: SearchPrecision) -> None:
        self._sublayer = _SubLayer(residual, precision)
        activation: Activation = "relu" if isinstance(network.activation, nn.ReLU) else "gelu"
        self._inner = pack(precision, network.inner, activation=activation)
        self._outer = pack(precision, network.outer)

    def __call__(self, x: Tensor) -> Tensor:
        hidden = self._inner(self._sublayer.before(x))
        return self._sublayer.after(self._outer(hidden, x))


class _Attention:
    """Projections, what the caller attends to with them, and the output."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        residual: Residual,
        precision: SearchPrecision,
        *inputs: nn.Linear,
    ) -> None:
        self._sublayer = _SubLayer(residual, precision)
        self._inputs = pack(precision, *inputs)
        self._output = pack(precision, attention.output)

    def __call__(self, x: Tensor, attend: Attend) -> Tensor:
        projected = self._inputs(self._sublayer.before(x))
        return self._sublayer.after(self._output(attend(projected), x))


class _EncoderLayer:
    """Self-attention over the source, then a feed-forward network."""

    def __init__(self, layer: EncoderLayer, precision: SearchPrecision) -> None:
        own = layer.self_attention
        self._self_attention = _Attention(
            own, layer.self_attention_residual, precision, own.query, own.key, own.value
        )
        self._feed_forward = _FeedForward(layer.feed_forward, layer.feed_forward_residual, precision)

    def __call__(self, x: Tensor, attend: Attend) -> Tensor:
        """Encode ``(N, D)``: ``(N, D)``."""
        return self._feed_forward(self._self_attention(x, attend))


class _DecoderLayer:
    """Masked self-attention over the target, cross-attention over the source, then a feed-forward network."""

    def __init__(self, layer: DecoderLayer, precision: SearchPrecision) -> None:
        own, cross = layer.self_attention, layer.cross_attention
        self._self_attention = _Attention(
            own, layer.self_attention_residual, precision, own.query, own.key, own.value
        )
        self._cross_attention = _Attention(cross, layer.cross_attention_residual, precision, cross.query)
        self._feed_forward = _FeedForward(layer.feed_forward, layer.feed_forward_residual, precision)
        self.source = pack(precision, cross.key, cross.value)

    def __call__(self, x: Tensor, attend_to_target: Attend, attend_to_source: Attend) -> Tensor:
        """Decode ``(N, D)``: ``(N, D)``."""
        x = self._self_attention(x, attend_to_target)
        return self._feed_forward(self._cross_attention(x, attend_to_source))


def _split(projected: Tensor, batch: int, number: int, heads: int) -> list[Tensor]:
    """``(B * T, number * D)`` -> ``number`` times ``(B, H, T, K)``."""
    length, width = len(projected) // batch, projected.size(1) // number
    split = projected.view(batch, length, number, heads, width // heads)
    return [part.transpose(1, 2) for part in split.unbind(2)]
