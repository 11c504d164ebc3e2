"""The key/value cache for decoding one token at a time.

It is passed as an argument, and is never an attribute of a module. One or more rows are decoded for each of B
sentences, R in total: one in greedy search, one for each beam in beam search.
"""

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one decoder layer: those of the rows grow, those of the sources are fixed."""

    def __init__(
        self, cross_keys: Tensor, cross_values: Tensor, max_length: int, rows_per_sentence: int = 1
    ) -> None:
        """Allocate ``max_length`` tokens for each row; the cross keys and values are ``(B, H, S, K)``."""
        batch, heads, _, width = cross_keys.shape
        self.cross_keys = cross_keys
        self.cross_values = cross_values
        # Allocated for all steps and rows at once: concatenation would copy everything at every step.
        self._keys = cross_keys.new_empty(batch * rows_per_sentence, heads, max_length, width)
        self._values = cross_values.new_empty(batch * rows_per_sentence, heads, max_length, width)

    def append(self, keys: Tensor, values: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Write ``(R, H, T, K)`` keys and values at position ``start``; return everything up to their end.

        Raises:
            ValueError: If they end beyond ``max_length``.
        """
        rows, end = keys.size(0), start + keys.size(2)
        if end > self._keys.size(2):
            # Writing to an empty slice would silently do nothing.
            raise ValueError(f"a cache of {self._keys.size(2)} tokens has no room for {end}")
        self._keys[:rows, :, start:end] = keys
        self._values[:rows, :, start:end] = values
        return self._keys[:rows, :, :end], self._values[:rows, :, :end]

    @property
    def most_rows(self) -> int:
        """The number of rows that the cache was allocated for."""
        return self._keys.size(0)

    def new_buffer(self) -> Tensor:
        """Allocate a buffer for the keys, or the values, of all rows."""
        return torch.empty_like(self._keys)

    def select_rows(self, rows: Tensor, length: int, spare: Tensor) -> Tensor:
        """Keep these rows ``(R',)``, in this order; only their first ``length`` positions are in use.

        The rows are copied into ``spare``, and their old buffer is returned as the next spare, because
        allocating new memory at each step would cost more than copying.
        """
        for name in ("_keys", "_values"):
            buffer: Tensor = getattr(self, name)
            torch.index_select(buffer[:, :, :length], 0, rows, out=spare[: rows.size(0), :, :length])
            setattr(self, name, spare)
            spare = buffer
        return spare

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep the cross keys and values of these sentences ``(B',)``, in this order."""
        self.cross_keys = self.cross_keys.index_select(0, sentences)
        self.cross_values = self.cross_values.index_select(0, sentences)


class DecoderCache:
    """The caches of all layers, the mask of the sources, and the number of cached target tokens."""

    def __init__(self, layers: list[LayerCache], src_mask: Tensor) -> None:
        self.layers = layers
        self.src_mask = src_mask
        self.length = 0
        self._spare: Tensor | None = None

    @torch.no_grad()
    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these rows ``(R',)`` and sentences ``(B',)``, in this order, as sentences end or beams change.

        A row may be repeated. None keeps all sentences.

        Raises:
            ValueError: If there are more rows than the cache was allocated for.
        """
        if rows.size(0) > self.layers[0].most_rows:
            raise ValueError(f"a cache of {self.layers[0].most_rows} rows has no room for {rows.size(0)}")
        if self._spare is None:
            self._spare = self.layers[0].new_buffer()
        for layer in self.layers:
            self._spare = layer.select_rows(rows, self.length, self._spare)
        if sentences is not None:
            self.src_mask = self.src_mask.index_select(0, sentences)
            for layer in self.layers:
                layer.select_sentences(sentences)
