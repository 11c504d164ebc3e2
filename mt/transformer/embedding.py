"""Token and position embeddings (Vaswani et al. 2017, sections 3.4 and 3.5)."""

import math

import torch
from torch import Tensor, nn

from mt.transformer.dropout import Dropout
from mt.transformer.positional_encoding import positional_encoding

_FIRST_POSITIONS = 1024


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
        self.max_length = max_length
        # Computed on demand, only as long as sentences need it, and therefore not saved.
        self.register_buffer("positions", tokens.weight.new_empty(0, tokens.embedding_dim), persistent=False)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed ``(B, T)`` ids, the first of them at position ``start``, as ``(B, T, D)``.

        Raises:
            ValueError: If the last position is beyond ``max_length``.
        """
        end = start + ids.size(1)
        if end > self.positions.size(0):
            self._grow(end)
        positions = self.positions[start:end]
        scales = self.word_dropout(self.tokens.weight.new_full((*ids.shape, 1), self.scale))
        embedded: Tensor = self.dropout(self.tokens(ids) * scales + positions)
        return embedded

    def _grow(self, num_positions: int) -> None:
        """Extend the table to at least this length, and at least double it."""
        if num_positions > self.max_length:
            # A slice beyond the table is short or empty, and broadcasting would hide it.
            raise ValueError(
                f"position {num_positions - 1} is beyond the {self.max_length} positions of the model"
            )
        length = min(self.max_length, max(num_positions, 2 * self.positions.size(0), _FIRST_POSITIONS))
        # Training may use a table that was computed in validation.
        with torch.inference_mode(mode=False):
            self.positions = positional_encoding(length, self.tokens.embedding_dim).to(self.positions)
