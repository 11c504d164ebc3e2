"""The cache of a decoder: keys and values of earlier tokens, so that a step only decodes the newest one.

N rows are decoded for each of B sentences, R = B * N in total: one in greedy search, one for each partial
hypothesis in beam search, where the first step has one, too.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

_GROWTH = 16
"""The positions by which a cache grows at a time: most translations end long before their limit."""


class LayerCache:
    """Keys and values of one layer: those of the sources are fixed, those of the rows grow."""

    def __init__(self, src_keys: Tensor, src_values: Tensor) -> None:
        """Begin with no tokens, over the keys and values ``(B, H, S, K)`` of the sources."""
        self.src_keys, self.src_values = src_keys, src_values
        self.length = 0
        # (R, T, H, K), where T is the length or up to `_GROWTH` positions more. With the heads side by side,
        # as they are projected, torch's attention kernel takes a quarter less time on a CPU.
        self._keys = self._values = src_keys.transpose(1, 2)[:, :0]

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of the newest tokens ``(R, H, 1, K)``; return those of all tokens ``(R, H, T, K)``."""
        if self.length == self._keys.size(1):
            self._keys, self._values = (
                F.pad(x, (0, 0, 0, 0, 0, _GROWTH)) for x in (self._keys, self._values)
            )
        self._keys[:, self.length] = keys[:, :, 0]
        self._values[:, self.length] = values[:, :, 0]
        self.length += 1
        written = self._keys[:, : self.length], self._values[:, : self.length]
        return written[0].transpose(1, 2), written[1].transpose(1, 2)

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """As `DecoderCache.select`."""
        self._keys, self._values = self._keys.index_select(0, rows), self._values.index_select(0, rows)
        if sentences is not None:
            self.src_keys = self.src_keys.index_select(0, sentences)
            self.src_values = self.src_values.index_select(0, sentences)


class DecoderCache:
    """The caches of all layers, and which source positions are real."""

    def __init__(self, sources: Sequence[tuple[Tensor, Tensor]], src_mask: Tensor) -> None:
        """Begin with the keys and values of the sources in each layer, and their mask ``(B, 1, 1, S)``."""
        self.layers = [LayerCache(keys, values) for keys, values in sources]
        self.src_mask = src_mask

    @property
    def length(self) -> int:
        """T, the number of tokens in each row."""
        return self.layers[0].length

    @torch.no_grad()
    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these rows ``(R',)`` and sentences ``(B',)``, in this order; None keeps all sentences.

        No sentence is repeated, but rows may be, within their sentence. All sentences have the same number of
        rows, ``R' / B'``, which may be greater than before.
        """
        # Layer by layer, so that at most one of them is in memory twice.
        for layer in self.layers:
            layer.select(rows, sentences)
        if sentences is not None:
            self.src_mask = self.src_mask.index_select(0, sentences)
