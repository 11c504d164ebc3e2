"""Ids to vectors that know where they stand (Vaswani et al. 2017, sections 3.4 and 3.5)."""

import math

from torch import Tensor, nn

from mt.transformer.dropout import Dropout
from mt.transformer.positional_encoding import positional_encoding


class PositionalEmbedding(nn.Module):
    """Token embedding times ``sqrt(D)``, plus the position, then dropout."""

    positions: Tensor

    def __init__(self, tokens: nn.Embedding, max_length: int, dropout: float) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(tokens.embedding_dim)
        self.dropout = Dropout(dropout)
        # Computed anew wherever the model is built, so not part of what is saved.
        positions = positional_encoding(max_length, tokens.embedding_dim)
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """``(B, T)`` ids, the first at position ``start``, -> ``(B, T, D)``.

        Raises:
            ValueError: If the last of them stands beyond ``max_length``.
        """
        end = start + ids.size(1)
        if end > self.positions.size(0):
            # A slice beyond the table is short or empty, and broadcasting would hide it.
            raise ValueError(
                f"there is no position {end - 1} in a model of {self.positions.size(0)} positions"
            )
        positions = self.positions[start:end]
        embedded: Tensor = self.dropout(self.tokens(ids) * self.scale + positions)
        return embedded
