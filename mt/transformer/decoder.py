"""The decoder (Vaswani et al. 2017, section 3.1)."""

from dataclasses import dataclass

from torch import Tensor, nn

from mt.masks import Mask
from mt.transformer.cache import DecoderCache, LayerCache
from mt.transformer.layer import LayerFactory


@dataclass(frozen=True)
class Decoded:
    """The output of the decoder, or of one of its layers."""

    hidden: Tensor
    """``(B, T, D)``."""
    alignment_scores: Tensor | None
    """How well each source position matches the next token of each target position: the scores of the first
    cross-attention head before the softmax, ``(B, T, S)``. None unless requested by ``with_alignment``."""


class DecoderLayer(nn.Module):
    """Masked self-attention over the target, cross-attention over the source, then a feed-forward network."""

    def __init__(self, factory: LayerFactory) -> None:
        super().__init__()
        self.self_attention = factory.attention()
        self.cross_attention = factory.attention()
        self.feed_forward = factory.feed_forward()
        self.self_attention_residual = factory.residual()
        self.cross_attention_residual = factory.residual()
        self.feed_forward_residual = factory.residual()

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
                keys = self.cross_attention.first_keys(memory)
                alignment_scores = self.cross_attention.alignment_scores(h, keys, src_mask)
            attended: Tensor = self.cross_attention(h, memory, src_mask)
            return attended

        x = self.self_attention_residual(x, lambda h: self.self_attention(h, h, tgt_mask))
        x = self.cross_attention_residual(x, attend_to_source)
        x = self.feed_forward_residual(x, self.feed_forward)
        return Decoded(x, alignment_scores)

    def decode_step(
        self, x: Tensor, cache: LayerCache, src_mask: Tensor, *, with_alignment: bool = False
    ) -> Decoded:
        """Decode the newest token of each row ``(R, 1, D)`` after those in the cache: ``(R, 1, D)``."""
        alignment_scores: Tensor | None = None

        def attend_to_past(h: Tensor) -> Tensor:
            keys, values = cache.append(*self.self_attention.keys_and_values(h))
            return self.self_attention.attend(h, keys, values, None)

        def attend_to_source(h: Tensor) -> Tensor:
            nonlocal alignment_scores
            # The rows of a sentence attend to the same source, like the positions of one translation.
            h = h.view(len(src_mask), -1, h.size(-1))
            if with_alignment:
                keys = cache.src_keys[:, 0]
                alignment_scores = self.cross_attention.alignment_scores(h, keys, src_mask)
            attended = self.cross_attention.attend(h, cache.src_keys, cache.src_values, src_mask)
            return attended.view_as(x)

        x = self.self_attention_residual(x, attend_to_past)
        x = self.cross_attention_residual(x, attend_to_source)
        x = self.feed_forward_residual(x, self.feed_forward)
        return Decoded(x, alignment_scores)


class Decoder(nn.Module):
    """A stack of ``num_layers`` layers of the same shape.

    Its alignment scores are those of the last layer, where the next word is already determined.
    """

    def __init__(self, factory: LayerFactory, num_layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(factory) for _ in range(num_layers))
        self.norm = factory.final_norm()

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

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> DecoderCache:
        """Return a cache without tokens over memory ``(B, S, D)``, for `decode_step`."""
        keys_and_values = [layer.cross_attention.keys_and_values(memory) for layer in self._decoder_layers()]
        return DecoderCache([LayerCache(*each) for each in keys_and_values], src_mask)

    def decode_step(self, x: Tensor, cache: DecoderCache, *, with_alignment: bool = False) -> Decoded:
        """Decode the newest embedded token of each row ``(R, 1, D)``; the cache grows by it."""
        for layer, layer_cache in zip(self._decoder_layers(), cache.layers, strict=True):
            is_last = layer is self.layers[-1]
            decoded = layer.decode_step(
                x, layer_cache, cache.src_mask, with_alignment=with_alignment and is_last
            )
            x = decoded.hidden
        return Decoded(self.norm(x), decoded.alignment_scores)

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
