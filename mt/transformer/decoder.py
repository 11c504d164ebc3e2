"""The stack that writes the target (Vaswani et al. 2017, section 3.1)."""

from typing import cast

from torch import Tensor, nn

from mt.transformer.cache import DecoderCache, LayerCache
from mt.transformer.layer import LayerShape

# The alignment head is the first of the last layer, where it is settled which word comes next.
ALIGNMENT_LAYER = -1


class DecoderLayer(nn.Module):
    """Masked self-attention over the target, attention over the source, then the feed-forward network."""

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
        tgt_mask: Tensor,
        alignment: list[Tensor] | None = None,
    ) -> Tensor:
        """All target positions at once: ``(B, T, D)`` over memory ``(B, S, D)`` -> ``(B, T, D)``.

        Where ``alignment`` is given, the scores of the first head, ``(B, T, S)``, are put into it.
        """

        def look_at_source(h: Tensor) -> Tensor:
            if alignment is not None:
                keys = self.cross_attention.keys_of_first_head(memory)
                alignment.append(self.cross_attention.scores_of_first_head(h, keys, src_mask))
            found: Tensor = self.cross_attention(h, memory, src_mask)
            return found

        x = self.self_attention_residual(x, lambda h: self.self_attention(h, h, tgt_mask))
        x = self.cross_attention_residual(x, look_at_source)
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output

    def start_cache(self, memory: Tensor, max_length: int, rows_per_sentence: int) -> LayerCache:
        """An empty cache that holds the keys and values of the source ``(B, S, D)``."""
        cross_keys, cross_values = self.cross_attention.keys_and_values(memory)
        return LayerCache(cross_keys, cross_values, max_length, rows_per_sentence)

    def step(
        self,
        x: Tensor,
        cache: LayerCache,
        src_mask: Tensor | None,
        start: int,
        alignment: list[Tensor] | None = None,
    ) -> Tensor:
        """The one target position ``start``: ``(R, 1, D)`` -> ``(R, 1, D)``, its keys and values cached.

        Where ``alignment`` is given, the scores of the first head, ``(R, S)``, are put into it.
        """

        def attend_to_past(h: Tensor) -> Tensor:
            # No mask: the cache holds the past and the present, never the future.
            keys, values = cache.append(*self.self_attention.keys_and_values(h), start)
            return self.self_attention.attend(h, keys, values, None)

        def attend_to_source(h: Tensor) -> Tensor:
            # The rows of one sentence ask side by side, like positions, so its keys need no copy for each.
            side_by_side = h.view(cache.cross_keys.size(0), -1, h.size(-1))
            if alignment is not None:
                scores = self.cross_attention.scores_of_first_head(
                    side_by_side, cache.cross_keys[:, 0], src_mask
                )
                alignment.append(scores.flatten(0, 1))
            found = self.cross_attention.attend(side_by_side, cache.cross_keys, cache.cross_values, src_mask)
            return found.view_as(h)

        x = self.self_attention_residual(x, attend_to_past)
        x = self.cross_attention_residual(x, attend_to_source)
        output: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return output


class Decoder(nn.Module):
    """``num_layers`` layers of the same shape, one on top of the other."""

    def __init__(self, shape: LayerShape, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(shape) for _ in range(num_layers))
        self.norm = shape.final_norm()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: Tensor | None,
        tgt_mask: Tensor,
        alignment: list[Tensor] | None = None,
    ) -> Tensor:
        """Embedded target ``(B, T, D)`` over memory ``(B, S, D)`` -> hidden ``(B, T, D)``.

        Where ``alignment`` is given, the scores of the alignment head, ``(B, T, S)``, are put into it.
        """
        for layer in self.layers:
            heard = alignment if layer is self.layers[ALIGNMENT_LAYER] else None
            x = layer(x, memory, src_mask, tgt_mask, heard)
        hidden: Tensor = self.norm(x)
        return hidden

    def start_cache(
        self, memory: Tensor, src_mask: Tensor, max_length: int, rows_per_sentence: int
    ) -> DecoderCache:
        """A cache with the keys and values of the source computed, once for all steps."""
        layers = [layer.start_cache(memory, max_length, rows_per_sentence) for layer in self._typed_layers()]
        return DecoderCache(layers, src_mask)

    def step(self, x: Tensor, cache: DecoderCache, alignment: list[Tensor] | None = None) -> Tensor:
        """The next target position, embedded ``(R, 1, D)``, -> hidden ``(R, 1, D)``; the cache grows.

        Where ``alignment`` is given, the scores of the alignment head, ``(R, S)``, are put into it.
        """
        for layer, layer_cache in zip(self._typed_layers(), cache.layers, strict=True):
            heard = alignment if layer is self.layers[ALIGNMENT_LAYER] else None
            x = layer.step(x, layer_cache, cache.src_mask, cache.length, heard)
        cache.length += 1
        hidden: Tensor = self.norm(x)
        return hidden

    def _typed_layers(self) -> list[DecoderLayer]:
        return cast("list[DecoderLayer]", list(self.layers))
