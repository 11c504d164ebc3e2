"""A key/value cache for CPUs that attends by weighted sums of rows, which torch calls embedding bags."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from mt.transformer.packed_cache import KeysAndValues, PackedCache

_FEW_SUMS = 64
"""Up to this many weighted sums, waiting for a second thread takes longer than the sums."""


def sums_rows_fast(device: torch.device) -> bool:
    """Return whether torch has fast kernels for embedding bags there: those of FBGEMM, on CPUs with AVX2."""
    return device.type == "cpu" and "fbgemm" in torch.backends.quantized.supported_engines


class BagCache(PackedCache):
    """A cache in float32 for CPUs, where rows attend by weighted sums of table rows.

    The scores of a query are the sum of the rows of the transposed keys, weighted by the query. What it
    attends to is the sum of the rows of the values, weighted by the softmax of the scores. torch computes
    such sums as embedding bags, whose rows it finds by their numbers in a table. So nothing is copied when
    sentences leave the batch, and a row's bits depend neither on other rows nor on padding.

    Of the B' sentences in the tables, B are still in the batch.
    """

    def __init__(self, sources: Sequence[KeysAndValues], src_mask: Tensor, max_length: int) -> None:
        """Begin with no tokens.

        Args:
            sources: For each layer, keys and values of the source ``(B, H, S', K)``. S' is S or a few
                positions more, which are left out.
            src_mask: ``(B, 1, 1, S)``, True where a source token is real.
            max_length: The most tokens in a row.
        """
        super().__init__(len(src_mask), max_length)
        self._src_length = src_mask.size(-1)
        # (B', H, K, S) and (B', S, H, K).
        self._sources = [
            (
                keys[:, :, : self._src_length].transpose(2, 3).contiguous(),
                values[:, :, : self._src_length].transpose(1, 2).contiguous(),
            )
            for keys, values in sources
        ]
        self._src_bias: Tensor | None = None
        if not bool(src_mask.all()):
            self._src_bias = torch.zeros(len(src_mask), 1, self._src_length)
            # Not minus infinity, so that a source without any token does not become NaN.
            self._src_bias.masked_fill_(~src_mask[:, 0], torch.finfo(torch.float32).min)
        batch, self._heads, self._width, _ = self._sources[0][0].shape
        self._scale = self._width**-0.5
        # (B', H, K, T, N) and (B', T, N, H, K).
        shape = self._heads, self._width
        self._written = [
            (values.new_empty(batch, *shape, 0, 1), values.new_empty(batch, 0, 1, *shape))
            for _, values in self._sources
        ]
        # Views of them, so that a step creates few: the tables of rows, and what is written at each position.
        self._tables = list(self._written)
        self._positions: list[tuple[Sequence[Tensor], Sequence[Tensor]]] = [((), ())] * len(sources)
        # For each row, the row of its sentence that wrote each token of its past, (B, N, T); None while there
        # is only one.
        self._writers: Tensor | None = None
        self._sentences = torch.arange(batch)
        self._have_left = False

    def _make_room(self) -> None:
        # Sentences that have left are not copied. Layer by layer, so that at most one is in memory twice.
        for layer, source in enumerate(self._sources):
            self._sources[layer] = self._in_batch(*source)
        for layer, written in enumerate(self._written):
            keys, values = self._in_batch(*written)
            added, rows = self._room - keys.size(3), self._rows_per_sentence - keys.size(4)
            keys, values = F.pad(keys, (0, rows, 0, added)), F.pad(values, (0, 0, 0, 0, 0, rows, 0, added))
            self._written[layer] = keys, values
            self._tables[layer] = keys.view(-1, keys.size(3) * keys.size(4)), values.view(-1, self._width)
            self._positions[layer] = keys.unbind(3), values.unbind(1)
        self._sentences = torch.arange(self._num_sentences)
        self._have_left = False
        self._number_rows()

    def _in_batch(self, keys: Tensor, values: Tensor) -> KeysAndValues:
        """Those of the sentences in the batch."""
        if not self._have_left:
            return keys, values
        return keys.index_select(0, self._sentences), values.index_select(0, self._sentences)

    def _number_rows(self) -> None:
        """Number the table rows that the sentences in the batch read."""
        rows = self._rows_per_sentence
        sentences = self._sentences.view(-1, 1, 1)
        # (B, 1, H * K) and (B, 1, H, S): the N rows of a sentence read the same.
        keys = sentences * (self._heads * self._width) + torch.arange(self._heads * self._width)
        heads = torch.arange(self._heads).view(-1, 1)
        positions = (sentences * self._src_length + torch.arange(self._src_length))[:, None]
        values = positions * self._heads + heads
        self._keys = _Bags(keys.expand(-1, rows, -1), self._width)
        self._values = _Bags(values.expand(-1, rows, -1, -1), self._src_length)
        # (B, 1, H, T): those that row 0 of each sentence has written.
        tokens = (sentences * self._room + torch.arange(self._room))[:, None]
        self._tokens = tokens * (rows * self._heads) + heads

    def _begin_position(self) -> None:
        tokens = self._tokens[..., : self.length]
        if self._writers is not None:
            own = torch.arange(self._rows_per_sentence).view(1, -1, 1).expand(self._num_sentences, -1, 1)
            self._writers = torch.cat((self._writers, own), dim=2)
            tokens = tokens + self._writers[:, :, None] * self._heads
        self._past = _Bags(tokens, self.length)

    def attend_to_target(self, layer: int, projected: Tensor) -> Tensor:
        """Write the newest tokens, and attend to the past, as in `PackedCache`."""
        rows = self._rows_per_sentence
        split = projected.float().view(self._num_sentences, rows, 3, self._heads, self._width)
        queries, new_keys, new_values = split.unbind(2)
        keys, values = self._positions[layer]
        self._write(keys[self.length - 1], new_keys.permute(0, 2, 3, 1))
        self._write(values[self.length - 1], new_values)
        keys_table, values_table = self._tables[layer]
        scores = self._keys.sums(keys_table, queries)
        if self._writers is None:
            scores = scores[:, : self.length]
        else:
            scores = scores.view(-1, rows, self._heads, self._room * rows)
            past = torch.arange(0, self.length * rows, rows) + self._writers
            scores = scores.gather(3, past[:, :, None].expand(-1, -1, self._heads, -1))
        weights = (scores * self._scale).softmax(-1)
        return self._past.sums(values_table, weights).view(len(projected), -1).to(projected.dtype)

    def _write(self, position: Tensor, new: Tensor) -> None:
        """Write what the sentences in the batch have at a position, ``(B, ...)`` into ``(B', ...)``."""
        if self._have_left:
            position.index_copy_(0, self._sentences, new)
        else:
            position.copy_(new)

    def attend_to_source(self, layer: int, queries: Tensor) -> Tensor:
        """Attend to the sources, as in `PackedCache`."""
        keys, values = self._sources[layer]
        weights = self._source_scores(self._keys.sums(keys, queries.float())).softmax(-1)
        return self._values.sums(values, weights).view_as(queries).to(queries.dtype)

    def alignment_scores(self, queries: Tensor) -> Tensor:
        """Score source positions, as in `PackedCache`."""
        keys, _ = self._sources[-1]
        # (B', K, S): those of the first head, for the sentences in the batch.
        keys = keys[:, 0].index_select(0, self._sentences)
        first = queries[:, : self._width].float().view(len(keys), self._rows_per_sentence, -1)
        return self._source_scores(first @ keys).flatten(0, 1)

    def _source_scores(self, products: Tensor) -> Tensor:
        """The scores of the source ``(B, queries, S)``, from the products of queries and keys."""
        products = products.view(self._num_sentences, -1, self._src_length)
        if self._src_bias is None:
            return products.mul_(self._scale)
        return torch.add(self._src_bias, products, alpha=self._scale)

    def _select_sentences(self, sentences: Tensor) -> None:
        if self._src_bias is not None:
            self._src_bias = self._src_bias.index_select(0, sentences)
        self._sentences = self._sentences.index_select(0, sentences)
        self._have_left = True
        self._number_rows()

    def _select_rows(self, rows: Tensor) -> None:
        shape = self._num_sentences, self._rows_per_sentence, self.length
        if self._writers is not None:
            self._writers = self._writers.flatten(0, 1).index_select(0, rows).view(shape)
        elif self._rows_per_sentence > 1:
            # The only row of each sentence has written them all.
            self._writers = torch.zeros(shape, dtype=torch.long)


class _Bags:
    """Which rows of a table to sum, whatever the table and the weights."""

    def __init__(self, rows: Tensor, number: int) -> None:
        """Sum the rows with these numbers, so many at a time."""
        self._rows = rows.flatten()
        self._starts = torch.arange(0, len(self._rows), number)
        self._are_few = len(self._starts) <= _FEW_SUMS

    def sums(self, table: Tensor, weights: Tensor) -> Tensor:
        """Sum rows of a table ``(..., W)`` with a weight for each: ``(number of sums, W)``."""
        table = table.view(-1, table.size(-1))
        num_threads = torch.get_num_threads()
        if self._are_few:
            torch.set_num_threads(1)
        try:
            return F.embedding_bag(
                self._rows, table, self._starts, mode="sum", per_sample_weights=weights.flatten()
            )
        finally:
            if self._are_few:
                torch.set_num_threads(num_threads)
