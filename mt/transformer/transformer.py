"""The whole model: encoder, decoder, and the projection to the vocabulary (Vaswani et al. 2017, figure 1)."""

from torch import Tensor, nn

from mt.transformer import kernels
from mt.transformer.attention import mask_scores
from mt.transformer.cache import DecoderCache
from mt.transformer.decoder import Decoded, Decoder
from mt.transformer.embedding import Embedding
from mt.transformer.encoder import Encoder


class Transformer(nn.Module):
    """The model: `forward`, or `encode` and `decode`, read whole translations; `decode_step` writes them."""

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        src_embedding: Embedding,
        tgt_embedding: Embedding,
        output: nn.Linear,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embedding = src_embedding
        self.tgt_embedding = tgt_embedding
        self.output = output

    def forward(self, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor) -> Tensor:
        """Predict each next target token from the preceding ones (teacher forcing): logits ``(B, T, V)``.

        The target ``(B, T)`` begins with BOS; its mask is ``(B, 1, T, T)``, and that of the source ``(B, S)``
        is ``(B, 1, 1, S)``.
        """
        memory = self.encode(src_ids, src_mask)
        return self.project(self.decode(tgt_ids, memory, src_mask, tgt_mask).hidden)

    def encode(self, src_ids: Tensor, src_mask: kernels.Mask) -> Tensor:
        """Encode the source ``(B, S)`` as memory ``(B, S, D)``."""
        memory: Tensor = self.encoder(self.src_embedding(src_ids), src_mask)
        return memory

    def decode(
        self,
        tgt_ids: Tensor,
        memory: Tensor,
        src_mask: kernels.Mask,
        tgt_mask: kernels.Mask,
        *,
        with_alignment: bool = False,
    ) -> Decoded:
        """Decode the target ``(B, T)`` over memory ``(B, S, D)``, on request with alignment scores."""
        decoded: Decoded = self.decoder(
            self.tgt_embedding(tgt_ids), memory, src_mask, tgt_mask, with_alignment=with_alignment
        )
        return decoded

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> DecoderCache:
        """Return a cache without tokens over memory ``(B, S, D)``, with one row for each sentence."""
        return self.decoder.start_cache(memory, src_mask)

    def decode_step(
        self, ids: Tensor, cache: DecoderCache, *, with_alignment: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Decode the newest token of each row ``(R,)``; the cache grows by it.

        It returns the logits ``(R, V)`` of the next token, and if requested its alignment scores ``(R, S)``.
        """
        x = self.tgt_embedding(ids[:, None], start=cache.length)
        decoded = self.decoder.decode_step(x, cache, with_alignment=with_alignment)
        scores = decoded.alignment_scores
        if scores is not None:
            # (B, R / B, S): the rows of a sentence share its mask.
            scores = mask_scores(scores, cache.src_mask[:, 0]).flatten(0, 1)
        return self.project(decoded.hidden[:, 0]), scores

    def project(self, hidden: Tensor) -> Tensor:
        """Project hidden states ``(..., D)`` to logits ``(..., V)``."""
        logits: Tensor = self.output(hidden)
        return logits

    def weights(self) -> dict[str, Tensor]:
        """Return every parameter by the name under which it first occurs; tied parameters appear once."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}
