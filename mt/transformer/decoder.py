"""The decoder (Vaswani et al. 2017, section 3.1)."""

from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from mt.masks import Mask
from mt.transformer.cache import DecoderCache, LayerCache
from mt.transformer.layer import LayerShape


@dataclass(frozen=True)
class Decoded:
    """The output of the decoder, or of one of its layers."""

    hidden: Tensor
    """``(B, T, D)``, or ``(R, 1, D)`` in a cached step."""
    alignment_scores: Tensor | None
    """How well each source position matches the next token of each target position: the scores of the first
    cross-attention head before the softmax, ``(B, T, S)``, or ``(R, S)`` in a cached step. None unless
    requested by ``with_alignment``."""


class DecoderLayer(nn.Module):
    """Masked self-attention over the target, cross-attention over the source, then a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = shape.attention()
        self.cross_attention = shape.attention()
        self.feed_forward = shape.feed_forward()
        self.self_attention_residual = shape.residual()
        self.cross_attention_residual = shape.residual()
        self.feed_forward_residual = shape.residual()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: Tensor | None,
        tgt_mask: Mask,
        *,
        with_alignment: bool = False,
    ) -> Decoded:
        """Decode all target positions at once: ``(B, T, D)`` over memory ``(B, S, D)``."""
        alignment_scores: Tensor | None = None

        def attend_to_source(h: Tensor) -> Tensor:
            nonlocal alignment_scores
            if with_alignment:
                alignment_scores = self.cross_attention.alignment_scores(h, memory, src_mask)
            attended: Tensor = self.cross_attention(h, memory, src_mask)
            return attended

        x = self.self_attention_residual(x, lambda h: self.self_attention(h, h, tgt_mask))
        x = self.cross_attention_residual(x, attend_to_source)
        x = self.feed_forward_residual(x, self.feed_forward)
        return Decoded(x, alignment_scores)

    def start_cache(self, memory: Tensor, max_length: int, rows_per_sentence: int) -> LayerCache:
        """Return a cache with the keys and values of the source ``(B, S, D)`` and none of the target."""
        cross_keys, cross_values = self.cross_attention.keys_and_values(memory)
        return LayerCache(cross_keys, cross_values, max_length, rows_per_sentence)

    def step(
        self,
        x: Tensor,
        cache: LayerCache,
        src_mask: Tensor | None,
        start: int,
        *,
        with_alignment: bool = False,
    ) -> Decoded:
        """Decode only target position ``start``, ``(R, 1, D)``, and add its keys and values to the cache."""
        alignment_scores: Tensor | None = None

        def attend_to_target(h: Tensor) -> Tensor:
            # No mask, because the cache contains the past and the present, never the future.
            keys, values = cache.append(*self.self_attention.keys_and_values(h), start)
            return self.self_attention.attend(h, keys, values, None)

        def attend_to_source(h: Tensor) -> Tensor:
            nonlocal alignment_scores
            # The rows of a sentence are passed as positions, so that they share its keys without copying.
            rows = h.view(cache.cross_keys.size(0), -1, h.size(-1))
            if with_alignment:
                scores = self.cross_attention.cached_alignment_scores(rows, cache.cross_keys, src_mask)
                alignment_scores = scores.flatten(0, 1)
            attended = self.cross_attention.attend(rows, cache.cross_keys, cache.cross_values, src_mask)
            return attended.view_as(h)

        x = self.self_attention_residual(x, attend_to_target)
        x = self.cross_attention_residual(x, attend_to_source)
        x = self.feed_forward_residual(x, self.feed_forward)
        return Decoded(x, alignment_scores)


class Decoder(nn.Module):
    """A stack of ``num_layers`` layers of the same shape.

    Its alignment scores are those of the last layer, where the next word is already determined.
    """

    def __init__(self, shape: LayerShape, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(num_layers))
        self.norm = shape.final_norm()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: Tensor | None,
        tgt_mask: Mask,
        *,
        with_alignment: bool = False,
    ) -> Decoded:
        """Decode the embedded target ``(B, T, D)`` over memory ``(B, S, D)``."""
        for layer in self.layers:
            is_last = layer is self.layers[-1]
            decoded: Decoded = layer(x, memory, src_mask, tgt_mask, with_alignment=with_alignment and is_last)
            x = decoded.hidden
        return Decoded(self.norm(x), decoded.alignment_scores)

    def start_cache(
        self, memory: Tensor, src_mask: Tensor, max_length: int, rows_per_sentence: int
    ) -> DecoderCache:
        """Return a cache with the source's keys and values of each layer, computed once for all steps."""
        layers = [layer.start_cache(memory, max_length, rows_per_sentence) for layer in self._typed_layers()]
        return DecoderCache(layers, src_mask)

    def step(self, x: Tensor, cache: DecoderCache, *, with_alignment: bool = False) -> Decoded:
        """Decode the next target position of each row, embedded ``(R, 1, D)``; the cache grows by it."""
        for layer, layer_cache in zip(self._typed_layers(), cache.layers, strict=True):
            is_last = layer is self.layers[-1]
            decoded = layer.step(
                x, layer_cache, cache.src_mask, cache.length, with_alignment=with_alignment and is_last
            )
            x = decoded.hidden
        cache.length += 1
        return Decoded(self.norm(x), decoded.alignment_scores)

    def _typed_layers(self) -> list[DecoderLayer]:
        return cast("list[DecoderLayer]", list(self.layers))
