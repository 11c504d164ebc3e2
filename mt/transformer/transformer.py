"""The whole model: encoder, decoder, and the projection to the vocabulary (Vaswani et al. 2017, figure 1)."""

from collections.abc import Mapping

from torch import Tensor, nn

from mt.masks import Mask
from mt.transformer.cache import DecoderCache
from mt.transformer.decoder import Decoded, Decoder
from mt.transformer.embedding import Embedding
from mt.transformer.encoder import Encoder


class Transformer(nn.Module):
    """The model: `forward` reads whole translations, as in training; `decode_step` writes them."""

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

    def encode(self, src_ids: Tensor, src_mask: Tensor | None) -> Tensor:
        """Encode the source ``(B, S)`` as memory ``(B, S, D)``."""
        memory: Tensor = self.encoder(self.src_embedding(src_ids), src_mask)
        return memory

    def decode(
        self,
        tgt_ids: Tensor,
        memory: Tensor,
        src_mask: Tensor | None,
        tgt_mask: Mask,
        *,
        with_alignment: bool = False,
    ) -> Decoded:
        """Decode the target ``(B, T)`` over memory ``(B, S, D)``, on request with alignment scores."""
        decoded: Decoded = self.decoder(
            self.tgt_embedding(tgt_ids), memory, src_mask, tgt_mask, with_alignment=with_alignment
        )
        return decoded

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> DecoderCache:
        """Return a cache without tokens over memory ``(B, S, D)``, for one row for each sentence."""
        return self.decoder.start_cache(memory, src_mask)

    def decode_step(
        self, ids: Tensor, cache: DecoderCache, *, with_alignment: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Decode the newest token of each row ``(R,)``, by which the cache grows.

        It returns the logits ``(R, V)`` of the next token, and if requested its alignment scores ``(R, S)``.
        """
        x = self.tgt_embedding(ids[:, None], start=cache.length)
        decoded = self.decoder.decode_step(x, cache, with_alignment=with_alignment)
        scores = decoded.alignment_scores
        return self.project(decoded.hidden[:, 0]), None if scores is None else scores.flatten(0, 1)

    def project(self, hidden: Tensor) -> Tensor:
        """Project hidden states ``(..., D)`` to logits ``(..., V)``."""
        logits: Tensor = self.output(hidden)
        return logits

    def weights(self) -> dict[str, Tensor]:
        """Return every parameter by its first name; tied parameters appear once."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy in weights returned by `weights`."""
        self.check_shapes({name: tuple(weight.shape) for name, weight in weights.items()})
        for name, weight in self.weights().items():
            weight.copy_(weights[name])

    def adopt_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Use these tensors as the parameters, without a copy, in a model that was built without memory."""
        self.check_shapes({name: tuple(weight.shape) for name, weight in weights.items()})
        new = {own: nn.Parameter(weights[name].to(own.dtype)) for name, own in self.named_parameters()}
        # Tied ones have several names here.
        named = self.named_parameters(remove_duplicate=False)
        self.load_state_dict({name: new[own] for name, own in named}, assign=True)

    def check_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Check that weights of these shapes would match; this also works on the meta device."""
        own = {name: tuple(weight.shape) for name, weight in self.weights().items()}
        if own.keys() != shapes.keys():
            odd = sorted(own.keys() ^ shapes.keys())
            raise ValueError(f"these weights belong to another model: they differ in {', '.join(odd[:3])}")
        for name, shape in own.items():
            if shape != shapes[name]:
                raise ValueError(f"{name} has the shape {shapes[name]}, not {shape}")
