"""The key/value cache: what decoding one token at a time need not compute again.

An object that is passed in and handed on, never an attribute of a module.
"""

from torch import Tensor


class LayerCache:
    """Keys and values of one decoder layer: its own, growing, and those of the source, which stay."""

    def __init__(self, cross_keys: Tensor, cross_values: Tensor, max_length: int) -> None:
        """Make room for ``max_length`` tokens; the cross keys and values are ``(B, H, S, K)``."""
        batch, heads, _, width = cross_keys.shape
        self.cross_keys = cross_keys
        self.cross_values = cross_values
        # Room for all steps at once: growing by concatenation would copy everything at every step.
        self._keys = cross_keys.new_empty(batch, heads, max_length, width)
        self._values = cross_values.new_empty(batch, heads, max_length, width)

    def append(self, keys: Tensor, values: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Put ``(B, H, T, K)`` keys and values at position ``start``; return all up to their end.

        Raises:
            ValueError: If they go beyond ``max_length``.
        """
        end = start + keys.size(2)
        if end > self._keys.size(2):
            # Writing to an empty slice changes nothing and raises nothing.
            raise ValueError(f"a cache of {self._keys.size(2)} tokens has no room for {end}")
        self._keys[:, :, start:end] = keys
        self._values[:, :, start:end] = values
        return self._keys[:, :, :end], self._values[:, :, :end]

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order; a row may stand more than once."""
        self.cross_keys = self.cross_keys.index_select(0, rows)
        self.cross_values = self.cross_values.index_select(0, rows)
        self._keys = self._keys.index_select(0, rows)
        self._values = self._values.index_select(0, rows)


class DecoderCache:
    """The caches of all layers, the source's mask, and how many target tokens they hold."""

    def __init__(self, layers: list[LayerCache], src_mask: Tensor) -> None:
        self.layers = layers
        self.src_mask = src_mask
        self.length = 0

    def select(self, rows: Tensor) -> None:
        """Keep these rows ``(B',)`` of the batch, in this order, as when sentences end or beams change."""
        self.src_mask = self.src_mask.index_select(0, rows)
        for layer in self.layers:
            layer.select(rows)
