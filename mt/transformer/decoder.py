"""The decoder (Vaswani et al. 2017, section 3.1)."""

from dataclasses import dataclass

from torch import Tensor, nn

from mt.masks import Mask
from mt.transformer.layer import LayerShape


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
