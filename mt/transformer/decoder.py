"""The decoder (Vaswani et al. 2017, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from mt.transformer import kernels
from mt.transformer.cache import DecoderCache
from mt.transformer.layer import LayerFactory


@dataclass(frozen=True)
class Decoded:
    """The output of the decoder, or of one of its layers."""

    hidden: Tensor
    """``(B, T, D)``."""
    alignment_scores: Tensor | None
    """How well each source position matches the next token of each target position: the scores of the first
    cross-attention head before mask and softmax, ``(B, T, S)``. None unless ``with_alignment`` is true."""


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
        src_mask: kernels.Mask,
        tgt_mask: kernels.Mask,
        *,
        with_alignment: bool = False,
    ) -> Decoded:
        """Decode all target positions at once: ``(B, T, D)`` over memory ``(B, S, D)``."""
        x = self.self_attention_residual(x, lambda h: self.self_attention(h, h, tgt_mask))
        # In two parts, because the alignment scores need the input of the sub-layer, too.
        h = self.cross_attention_residual.sublayer_input(x)
        scores = None
        if with_alignment:
            scores = self.cross_attention.alignment_scores(h, self.cross_attention.first_keys(memory))
        x = self.cross_attention_residual.add_output(x, self.cross_attention(h, memory, src_mask))
        x = self.feed_forward_residual(x, self.feed_forward)
        return Decoded(x, scores)

    def decode_step(
        self, x: Tensor, cache: DecoderCache, number: int, *, with_alignment: bool = False
    ) -> Decoded:
        """Decode the newest token of each row ``(R, 1, D)`` after those that layer ``number`` remembers.

        The alignment scores are ``(B, R / B, S)``.
        """
        past, src_mask = cache.layers[number], cache.src_mask
        h = self.self_attention_residual.sublayer_input(x)
        keys, values = past.append(*self.self_attention.keys_and_values(h))
        # No mask: there are only this token and earlier ones.
        x = self.self_attention_residual.add_output(x, self.self_attention.attend(h, keys, values, None))
        # The rows of a sentence are viewed as (B, R / B, D): queries of one source do not see each other.
        h = self.cross_attention_residual.sublayer_input(x).view(len(src_mask), -1, x.size(-1))
        scores = None
        if with_alignment:
            scores = self.cross_attention.alignment_scores(h, past.src_keys[:, 0])
        attended = self.cross_attention.attend(h, past.src_keys, past.src_values, src_mask)
        x = self.cross_attention_residual.add_output(x, attended.view_as(x))
        x = self.feed_forward_residual(x, self.feed_forward)
        return Decoded(x, scores)


class Decoder(nn.Module):
    """A stack of ``num_layers`` layers of the same shape.

    Its alignment scores are those of the last layer, where the next word is mostly determined.
    """

    def __init__(self, factory: LayerFactory, num_layers: int) -> None:
        super().__init__()
        layers = [DecoderLayer(factory) for _ in range(num_layers)]
        self.layers: Sequence[DecoderLayer] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.norm = factory.final_norm()

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        src_mask: kernels.Mask,
        tgt_mask: kernels.Mask,
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
        sources = [layer.cross_attention.keys_and_values(memory) for layer in self.layers]
        return DecoderCache(sources, src_mask)

    def decode_step(self, x: Tensor, cache: DecoderCache, *, with_alignment: bool = False) -> Decoded:
        """Decode the newest embedded token of each row ``(R, 1, D)``; the cache grows by it."""
        for number, layer in enumerate(self.layers):
            is_last = layer is self.layers[-1]
            decoded: Decoded = layer.decode_step(x, cache, number, with_alignment=with_alignment and is_last)
            x = decoded.hidden
        return Decoded(self.norm(x), decoded.alignment_scores)
