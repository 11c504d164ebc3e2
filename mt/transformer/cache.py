"""The key/value cache: what decoding one token at a time need not compute again.

An object that is passed in and handed on, never an attribute of a module. Of each of B sentences one or more
rows are written, R in all: one in greedy search, one for each beam in beam search.
"""

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one decoder layer: of each row, growing, and of each source, which stay."""

    def __init__(
        self, cross_keys: Tensor, cross_values: Tensor, max_length: int, rows_per_sentence: int = 1
    ) -> None:
        """Make room for ``max_length`` tokens; the cross keys and values are ``(B, H, S, K)``."""
        batch, heads, _, width = cross_keys.shape
        self.cross_keys = cross_keys
        self.cross_values = cross_values
        # Room for all steps and rows at once: growing by concatenation would copy everything at every step.
        self._keys = cross_keys.new_empty(batch * rows_per_sentence, heads, max_length, width)
        self._values = cross_values.new_empty(batch * rows_per_sentence, heads, max_length, width)

    def append(self, keys: Tensor, values: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Put ``(R, H, T, K)`` keys and values at position ``start``; return all up to their end.

        Raises:
            ValueError: If they go beyond ``max_length``.
        """
        rows, end = keys.size(0), start + keys.size(2)
        if end > self._keys.size(2):
            # Writing to an empty slice changes nothing and raises nothing.
            raise ValueError(f"a cache of {self._keys.size(2)} tokens has no room for {end}")
        self._keys[:rows, :, start:end] = keys
        self._values[:rows, :, start:end] = values
        return self._keys[:rows, :, :end], self._values[:rows, :, :end]

    @property
    def most_rows(self) -> int:
        """As many as there were at first."""
        return self._keys.size(0)

    def new_buffer(self) -> Tensor:
        """Room for the keys, or the values, of all rows."""
        return torch.empty_like(self._keys)

    def select_rows(self, rows: Tensor, length: int, spare: Tensor) -> Tensor:
        """Keep these rows ``(R',)``, in this order; only their first ``length`` positions hold anything.

        They move into ``spare``, and what they leave is returned, to be the next spare: memory that is new at
        each step would cost more than the copying.
        """
        for name in ("_keys", "_values"):
            buffer: Tensor = getattr(self, name)
            torch.index_select(buffer[:, :, :length], 0, rows, out=spare[: rows.size(0), :, :length])
            setattr(self, name, spare)
            spare = buffer
        return spare

    def select_sentences(self, sentences: Tensor) -> None:
        """Keep the sources of these sentences ``(B',)``, in this order."""
        self.cross_keys = self.cross_keys.index_select(0, sentences)
        self.cross_values = self.cross_values.index_select(0, sentences)


class DecoderCache:
    """The caches of all layers, the source's mask, and how many target tokens they hold."""

    def __init__(self, layers: list[LayerCache], src_mask: Tensor) -> None:
        self.layers = layers
        self.src_mask = src_mask
        self.length = 0
        self._spare: Tensor | None = None

    @torch.no_grad()
    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these rows ``(R',)`` and these sentences ``(B',)``, as when sentences end or beams change.

        A row may stand more than once. None keeps all sentences as they are.

        Raises:
            ValueError: If these are more rows than there was room for at first.
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
