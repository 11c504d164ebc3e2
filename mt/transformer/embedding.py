"""Token and position embeddings (Vaswani et al. 2017, sections 3.4 and 3.5)."""

import math

import torch
from torch import Tensor, nn

from mt.transformer import kernels

_FIRST_POSITIONS = 1024


def positional_encoding(num_positions: int, d_model: int) -> Tensor:
    """Compute ``PE(pos, 2i) = sin(pos / 10000^(2i/D))`` and ``PE(pos, 2i+1) = cos(pos / 10000^(2i/D))``.

    Positions count from 0, and D must be even: ``(num_positions, D)`` in float32.
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10_000.0) / d_model))
    angle = position * frequency
    # Sines and cosines alternate along the width; float64 keeps distant positions exact.
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


class Embedding(nn.Module):
    """Token embedding times ``sqrt(D)``, plus the encoding of the position, then dropout.

    Word dropout zeroes whole token embeddings in training but keeps their positions (Gal and Ghahramani 2016,
    section 4.2; independently for each token, as Sennrich et al. 2016 do for translation).
    """

    positions: Tensor

    def __init__(
        self, tokens: nn.Embedding, max_length: int, dropout: float, word_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.scale = math.sqrt(tokens.embedding_dim)
        self.word_dropout = kernels.Dropout(word_dropout)
        self.dropout = kernels.Dropout(dropout)
        self.max_length = max_length
        # Computed on demand, only as long as the sentences need, and therefore not saved. It is a real
        # tensor even in a model on the meta device.
        empty = torch.empty(0, tokens.embedding_dim, device="cpu")
        self.register_buffer("positions", empty, persistent=False)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed ``(B, T)`` ids, the first of them at position ``start``, as ``(B, T, D)``."""
        positions = self._positions_up_to(start + ids.size(1))[start:]
        # Word dropout zeroes the scale of a token, and with it the whole embedding.
        scales = self.word_dropout(self.tokens.weight.new_full((*ids.shape, 1), self.scale))
        embedded: Tensor = self.dropout(self.tokens(ids) * scales + positions)
        return embedded

    def _positions_up_to(self, end: int) -> Tensor:
        # Read once: another thread may replace it.
        table = self.positions
        if end > self.max_length:
            # A slice beyond the table is short or empty, and broadcasting would hide it.
            raise ValueError(f"position {end - 1} is beyond the {self.max_length} positions of the model")
        if end > len(table):
            length = min(self.max_length, max(end, 2 * len(table), _FIRST_POSITIONS))
            # Not as an inference tensor, which training could not use after a validation computed it.
            with torch.inference_mode(mode=False):
                table = positional_encoding(length, table.size(1)).to(self.tokens.weight)
                self.positions = table
        return table[:end]
