"""The key/value cache of a `mt.transformer.packed_transformer.PackedTransformer`.

N rows are decoded for each of B sentences, R = B * N in total; at first, N is 1. What a row has written is
never moved when beams are reordered.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from mt.transformer.attention import join_heads

KeysAndValues = tuple[Tensor, Tensor]
"""Keys and values, each ``(B, H, Tk, K)``."""

_GROWTH = 16
"""The positions by which a cache grows at a time: most translations end long before their limit."""


class PackedCache(ABC):
    """Keys and values of all decoder layers: those of the rows grow, those of the sources are fixed."""

    def __init__(self, num_sentences: int, max_length: int) -> None:
        """Begin with no tokens, for one row of at most ``max_length`` tokens for each sentence."""
        self.length = 0
        self._num_sentences = num_sentences
        self._rows_per_sentence = 1
        self._max_length = max_length
        self._room = 0

    def grow(self) -> None:
        """Begin the next position; memory is allocated for several at a time."""
        if self.length == self._max_length:
            raise ValueError(f"a cache of {self.length} tokens has no room for {self.length + 1}")
        if self.length == self._room:
            added = min(_GROWTH, self._max_length - self.length)
            self._room += added
            self._make_room()
        self.length += 1
        self._begin_position()

    @abstractmethod
    def _make_room(self) -> None:
        """Allocate memory for ``self._room`` positions and N rows for each sentence."""

    @abstractmethod
    def _begin_position(self) -> None:
        """Prepare for the newest position, which is the last of ``self.length``."""

    @abstractmethod
    def attend_to_target(self, layer: int, projected: Tensor) -> Tensor:
        """Add the newest tokens to the cache of a layer, and let them attend to their past and themselves.

        Args:
            layer: Counted from the bottom.
            projected: ``(R, 3 * D)``, the queries, keys and values.

        Returns:
            ``(R, D)``.
        """

    @abstractmethod
    def attend_to_source(self, layer: int, queries: Tensor) -> Tensor:
        """Let the rows attend to their sources with queries ``(R, D)``: ``(R, D)``."""

    @abstractmethod
    def alignment_scores(self, queries: Tensor) -> Tensor:
        """Score source positions by the first head of the last layer: ``(R, D)`` -> ``(R, S)`` in float32."""

    @torch.no_grad()
    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these rows ``(R',)`` and sentences ``(B',)``, in this order; None keeps all sentences.

        A row may be repeated, but stays a row of its own sentence, and N may grow. No sentence is repeated.
        """
        if sentences is not None:
            self._num_sentences = len(sentences)
            self._select_sentences(sentences)
        before, self._rows_per_sentence = self._rows_per_sentence, len(rows) // self._num_sentences
        self._select_rows(rows)
        if self._rows_per_sentence > before:
            self._make_room()

    @abstractmethod
    def _select_sentences(self, sentences: Tensor) -> None:
        """Keep these sentences ``(B',)``."""

    @abstractmethod
    def _select_rows(self, rows: Tensor) -> None:
        """Keep these rows ``(R',)`` of the sentences that are left."""


class KernelCache(PackedCache):
    """A cache for torch's attention kernel.

    A mask marks which tokens written by any row of its sentence are the row's own past.
    """

    def __init__(
        self,
        sources: Sequence[KeysAndValues],
        src_mask: Tensor | None,
        src_length: int,
        max_length: int,
    ) -> None:
        """Begin with no tokens.

        Args:
            sources: For each layer, keys and values of the source ``(B, H, S, K)``, in the type of all keys.
            src_mask: ``(B, 1, 1, S)``, 0 where a source token is real and minus infinity elsewhere; None if
                all are real.
            src_length: The number of source positions, without those that the model has added.
            max_length: The most tokens in a row.
        """
        keys, _ = sources[0]
        batch, heads, _, width = keys.shape
        super().__init__(batch, max_length)
        self._sources = list(sources)
        self._src_mask = src_mask
        self._src_length = src_length
        # The N rows for each sentence and position, so that the past of a sentence is contiguous in memory.
        self._written = [keys.new_empty(batch, 0, 1, 2, heads, width) for _ in sources]
        self._pasts = [_keys_and_values(written) for written in self._written]
        # (R, T, N), 0 for a row's own past and minus infinity elsewhere; None while there is nothing else.
        self._is_past: Tensor | None = None

    def _make_room(self) -> None:
        for layer, written in enumerate(self._written):
            shape = self._num_sentences, self._room, self._rows_per_sentence, *written.shape[3:]
            # As a matrix for each sentence: MPS pads no more than three dimensions by itself.
            self._keep(layer, _enlarged(written.flatten(2), self._room, math.prod(shape[2:])).view(shape))
        if self._is_past is not None:
            self._is_past = _enlarged(self._is_past, self._room, self._rows_per_sentence, -torch.inf)

    def _begin_position(self) -> None:
        if self._is_past is not None:
            rows = self._rows_per_sentence
            # Of the newest tokens, a row sees only its own, which is at the row's position.
            newest = self._is_past[:, self.length - 1].view(-1, rows, rows)
            newest.diagonal(dim1=1, dim2=2).zero_()

    def attend_to_target(self, layer: int, projected: Tensor) -> Tensor:
        """Write the newest tokens, and attend to the past, as in `PackedCache`."""
        written, rows = self._written[layer], self._rows_per_sentence
        batch, _, _, _, heads, width = written.shape
        new = projected.view(batch, rows, 3, heads, width)
        written[:, self.length - 1] = new[:, :, 1:]
        end = self.length * rows
        keys, values = (part[:, :, :end] for part in self._pasts[layer])
        mask = None
        if self._is_past is not None:
            mask = self._is_past[:, : self.length].flatten(1).view(batch, 1, rows, -1)
        queries = new[:, :, 0].transpose(1, 2)
        return attend(queries, keys, values, mask).view(batch * rows, -1)

    def attend_to_source(self, layer: int, queries: Tensor) -> Tensor:
        """Attend to the sources, as in `PackedCache`."""
        keys, values = self._sources[layer]
        batch, heads, _, width = keys.shape
        split = queries.view(batch, self._rows_per_sentence, heads, width).transpose(1, 2)
        return attend(split, keys, values, self._src_mask).view_as(queries)

    def alignment_scores(self, queries: Tensor) -> Tensor:
        """Score source positions, as in `PackedCache`."""
        keys = self._sources[-1][0][:, 0].float()
        width = keys.size(-1)
        first = queries[:, :width].float().view(keys.size(0), self._rows_per_sentence, width)
        scores: Tensor = first @ keys.transpose(1, 2) / width**0.5
        if self._src_mask is not None:
            scores.masked_fill_(self._src_mask[:, 0].isneginf(), torch.finfo(scores.dtype).min)
        return scores.flatten(0, 1)[:, : self._src_length]

    def _select_sentences(self, sentences: Tensor) -> None:
        if self._src_mask is not None:
            self._src_mask = self._src_mask.index_select(0, sentences)
        # Layer by layer, so that at most one layer is in memory twice.
        for layer, (keys, values) in enumerate(self._sources):
            self._sources[layer] = keys.index_select(0, sentences), values.index_select(0, sentences)
        for layer, written in enumerate(self._written):
            # Also the positions that nothing has been written to: on MPS, the versions of torch before 2.14
            # cannot select into a part of a tensor.
            self._keep(layer, written.index_select(0, sentences))

    def _select_rows(self, rows: Tensor) -> None:
        if self._is_past is not None:
            self._is_past = self._is_past.index_select(0, rows)
        elif self._rows_per_sentence > 1:
            # Each row continues what the only one of its sentence has written.
            self._is_past = self._written[0].new_zeros(len(rows), self.length, 1)

    def _keep(self, layer: int, written: Tensor) -> None:
        """Store ``(B, T, N, 2, H, K)`` as what a layer has written."""
        self._written[layer] = written
        self._pasts[layer] = _keys_and_values(written)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attend like `ScaledDotProductAttention`, in the type of the keys, and join the heads.

    Args:
        queries: ``(B, H, Tq, K)``.
        keys: ``(B, H, Tk, K)``, like ``values``.
        values: ``(B, H, Tk, K)``.
        mask: True = may attend, or numbers in the type of the keys that are added to the scores.

    Returns:
        ``(B, Tq, D)``, in the type of the queries.
    """
    attended = F.scaled_dot_product_attention(queries.to(keys.dtype), keys, values, attn_mask=mask)
    return join_heads(attended).to(queries.dtype)


def _enlarged(x: Tensor, height: int, width: int, value: float = 0.0) -> Tensor:
    """``(n, h, w)`` -> ``(n, height, width)``, with ``value`` below and to the right."""
    return F.pad(x, (0, width - x.size(2), 0, height - x.size(1)), value=value)


def _keys_and_values(written: Tensor) -> KeysAndValues:
    """Views of ``(B, T, N, 2, H, K)`` for attention: keys and values ``(B, H, T * N, K)``."""
    keys, values = written.flatten(1, 2).transpose(1, 3).unbind(2)
    return keys, values
