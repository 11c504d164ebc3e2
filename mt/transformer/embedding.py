"""Token and position embeddings (Vaswani et al. 2017, sections 3.4 and 3.5)."""

import math

from torch import Tensor, nn

from mt.transformer.dropout import Dropout
from mt.transformer.positional_encoding import positional_encoding


class PositionalEmbedding(nn.Module):
    """Token embedding times ``sqrt(D)``, plus the encoding of the position, then dropout.

    Word dropout zeroes whole token embeddings in training and leaves their positions (Gal and Ghahramani
    2016, section 4.2; for each token on its own, as Sennrich et al. 2016 do for translation).
    """

    positions: Tensor

    def __init__(
        self, tokens: nn.Embedding, max_length: int, dropout: float, word_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(tokens.embedding_dim)
        self.word_dropout = Dropout(word_dropout)
        self.dropout = Dropout(dropout)
        # Computed anew wherever the model is built, so not part of what is saved.
        positions = positional_encoding(max_length, tokens.embedding_dim)
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed ``(B, T)`` ids, the first of them at position ``start``, as ``(B, T, D)``.

        Raises:
            ValueError: If the last position is beyond ``max_length``.
        """
        end = start + ids.size(1)
        if end > self.positions.size(0):
            # A slice beyond the table is short or empty, and broadcasting would hide it.
            raise ValueError(
                f"there is no position {end - 1} in a model of {self.positions.size(0)} positions"
            )
        positions = self.positions[start:end]
        scales = self.word_dropout(self.tokens.weight.new_full((*ids.shape, 1), self.scale))
        embedded: Tensor = self.dropout(self.tokens(ids) * scales + positions)
        return embedded
