"""A small word aligner: which source word each target word translates, for losses that need it.

The model is that of fast_align (Dyer et al. 2013): a word picks a position of the other sentence near the
diagonal, or none, and is then drawn from the translations of the word there (IBM model 1, Brown et al. 1993).
Both directions are trained jointly, and a link counts as much as they agree on it (Liang et al. 2006).
"""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from mt.data.batches.pairs import EncodedPairs, SrcPositions, mapped
from mt.data.cache import cached
from mt.display import track

NONE = -1
"""The position of a target word that translates no source word."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# How strongly the prior prefers the diagonal, and the share of words without counterpart (fast_align).
_TENSION = 4.0
_NO_COUNTERPART = 0.08
_ITERATIONS = 5
# The minimum posterior of a link, as the geometric mean of both directions.
_LEAST_POSTERIOR = 0.3
# The most cells (source times target tokens) to learn from: Multi30k fits, and a cell takes about 80 bytes.
_MOST_CELLS = 6_000_000
_CELLS_AT_A_TIME = 1_000_000
# Of a token whose cells all have the prior 0; any other is larger.
_LEAST_TOTAL = 1e-300


@dataclass(frozen=True)
class Lexicon:
    """Translation probabilities of the W pairs of words that are seen in the same sentence pair."""

    keys: Integers
    """``(W,)`` sorted, a number for each pair of words: source id times `tgt_vocab_size` plus target id."""
    tgt_given_src: Floats
    src_given_tgt: Floats
    tgt_vocab_size: int
    no_counterpart: float
    """Probability that a word has no counterpart and is this one."""

    @classmethod
    def learn(cls, pairs: EncodedPairs, not_text: Collection[int] = ()) -> Self:
        """Learn from training pairs; from an evenly spread sample of them if the corpus is large."""
        num_cells = int(_num_cells(pairs).sum())
        grid = _Grid.of(pairs, np.arange(0, len(pairs), -(-num_cells // _MOST_CELLS)), not_text)
        tgt_vocab_size = int(grid.tgt_ids.max()) + 1
        keys, word_pair = np.unique(grid.keys(tgt_vocab_size), return_inverse=True)
        src_word, tgt_word = np.divmod(keys, tgt_vocab_size)
        no_counterpart = _NO_COUNTERPART / max(len(grid.src_ids), len(grid.tgt_ids))
        tgt_given_src = src_given_tgt = np.ones(len(keys))
        for _ in track(range(_ITERATIONS), "learning the alignment", unit="iterations"):
            posterior = grid.posterior(tgt_given_src[word_pair], src_given_tgt[word_pair], no_counterpart)
            counts = np.bincount(word_pair, posterior, minlength=len(keys))
            tgt_given_src, src_given_tgt = (
                counts / np.maximum(np.bincount(word, counts), 1e-12)[word] for word in (src_word, tgt_word)
            )
        return cls(keys, tgt_given_src, src_given_tgt, tgt_vocab_size, no_counterpart)

    def align(self, pairs: EncodedPairs, indices: Integers, not_text: Collection[int] = ()) -> SrcPositions:
        """The source position of each target token of the pairs at ``indices``, concatenated, or NONE."""
        grid = _Grid.of(pairs, indices, not_text)
        keys = grid.keys(self.tgt_vocab_size)
        index = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        is_known = (self.keys[index] == keys) & (grid.tgt_ids < self.tgt_vocab_size)[grid.tgt]
        posterior = grid.posterior(
            self.tgt_given_src[index] * is_known, self.src_given_tgt[index] * is_known, self.no_counterpart
        )
        best = np.maximum.reduceat(posterior, grid.starts)
        is_best = np.flatnonzero((posterior == best[grid.tgt]) & (posterior >= _LEAST_POSTERIOR**2))
        is_best = is_best[::-1]  # Of equally good cells, the first is assigned last, and stays.
        src_positions = np.full(len(best), NONE, dtype=np.int16)
        src_positions[grid.tgt[is_best]] = is_best - grid.starts[grid.tgt[is_best]]
        return src_positions


def align(pairs: EncodedPairs, not_text: Collection[int] = ()) -> SrcPositions:
    """The source position of each target token, or NONE, in the layout of ``pairs.tgt.ids``; it is cached.

    No word is aligned with source ids that are ``not_text``, such as that of a direction.
    """
    digest = hashlib.blake2b(digest_size=16)
    for array in (pairs.src.ids, pairs.src.lengths, pairs.tgt.ids, pairs.tgt.lengths):
        digest.update(np.ascontiguousarray(array).data)

    def fill(folder: Path) -> int:
        blocks = _aligned(pairs, Lexicon.learn(pairs, not_text), not_text)
        with (folder / "src_positions").open("wb") as file:
            for src_positions in track(blocks, "aligning", unit="words", total=len(pairs.tgt.ids), size=len):
                file.write(src_positions.data)
        return len(pairs)

    key = {"what": "source positions", "ids": digest.hexdigest()}
    return cached(key, fill, lambda folder: mapped(folder / "src_positions", np.int16))


def _aligned(pairs: EncodedPairs, lexicon: Lexicon, not_text: Collection[int]) -> Iterator[SrcPositions]:
    """The positions for several pairs at a time."""
    ends = _num_cells(pairs).cumsum()
    cuts = np.searchsorted(ends, np.arange(_CELLS_AT_A_TIME, ends[-1], _CELLS_AT_A_TIME))
    for indices in np.split(np.arange(len(pairs)), cuts):
        if len(indices):
            yield lexicon.align(pairs, indices, not_text)


def _num_cells(pairs: EncodedPairs) -> Integers:
    """The cells of each pair."""
    return np.diff(pairs.src.offsets) * np.diff(pairs.tgt.offsets)


@dataclass(frozen=True)
class _Grid:
    """Each target token of some pairs against each source token of its pair: C cells, target by target."""

    src: Integers
    """``(C,)`` index of the cell's source token, counted over all pairs."""
    tgt: Integers
    """``(C,)`` index of its target token, likewise."""
    prior: Floats
    """``(C,)`` 1 on the diagonal, less away from it, 0 where the source is not text."""
    starts: Integers
    """The first cell of each target token."""
    src_ids: Integers
    tgt_ids: Integers

    @classmethod
    def of(cls, pairs: EncodedPairs, indices: Integers, not_text: Collection[int]) -> Self:
        """The cells of the pairs at ``indices``; no sentence is empty."""
        src, tgt = pairs.select(indices)
        src_lengths = np.diff(src.offsets)
        tgt_lengths = np.diff(tgt.offsets)
        # For each target token: its position, and the start and length of its source.
        tgt_position = _count_up(tgt_lengths)
        src_start = np.repeat(src.offsets[:-1], tgt_lengths)
        src_length = np.repeat(src_lengths, tgt_lengths)
        # For each cell:
        tgt_of_cell = np.repeat(np.arange(len(src_length)), src_length)
        src_position = _count_up(src_length)
        tgt_share = (tgt_position + 0.5) / np.repeat(tgt_lengths, tgt_lengths)
        off_diagonal = (src_position + 0.5) / src_length[tgt_of_cell] - tgt_share[tgt_of_cell]
        src_of_cell = src_start[tgt_of_cell] + src_position
        prior = np.exp(-_TENSION * np.abs(off_diagonal))
        if not_text:
            prior[np.isin(src.ids, [*not_text])[src_of_cell]] = 0.0
        return cls(
            src_of_cell,
            tgt_of_cell,
            prior,
            np.cumsum(src_length) - src_length,
            src.ids.astype(np.int64),
            tgt.ids.astype(np.int64),
        )

    def keys(self, tgt_vocab_size: int) -> Integers:
        """One number for the two words of each cell."""
        return self.src_ids[self.src] * tgt_vocab_size + self.tgt_ids[self.tgt]

    def posterior(self, tgt_given_src: Floats, src_given_tgt: Floats, no_counterpart: float) -> Floats:
        """The product of both directions' posteriors that a cell is a link, ``(C,)``."""
        forward = self._posterior(self.tgt, tgt_given_src, no_counterpart)
        return forward * self._posterior(self.src, src_given_tgt, no_counterpart)

    def _posterior(self, token: Integers, translation: Floats, no_counterpart: float) -> Floats:
        """The probability ``(C,)`` that a token picks this cell: (1-q)pt / (sum of (1-q)pt + no_counterpart).

        p is the prior, normalised over the cells of a token, and q the share of words without counterpart.
        """
        weight = self.prior * translation
        no_link = no_counterpart / (1 - _NO_COUNTERPART)
        total = np.bincount(token, weight) + no_link * np.bincount(token, self.prior)
        return weight / np.maximum(total, _LEAST_TOTAL)[token]


def _count_up(lengths: Integers) -> Integers:
    """``[2, 3]`` -> ``[0, 1, 0, 1, 2]``."""
    return np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
