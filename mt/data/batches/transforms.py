"""Transforms of text: in each epoch, some training pairs have another text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from datasets import Dataset

from mt.data.batches.alignment import NONE, Integers, SrcPositions
from mt.data.batches.dataset import encode_texts
from mt.data.batches.pairs import EncodedPairs, EncodedSentences, Ids
from mt.data.chunks import CHUNK_SIZE, pairs_of
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.seeding import derived_seed
from mt.sides import Sides


class Transform(NamedTuple):
    """A change of the text of a ``share`` of the rows of the corpus."""

    purpose: str
    """Names its draws, which follow from (purpose, seed, epoch, row)."""
    share: float
    change: Callable[[int, Sides[str], np.random.Generator], Sides[str]]
    """The new text of a row, from its number in the corpus and its text."""
    realign: Callable[[Ids, Sides[Ids], Sides[Ids]], Ids] | None = None
    """The source position of each new target token, from the old ones and the ids before and after.

    None: no token has one.
    """

    def generator(self, *numbers: int) -> np.random.Generator:
        """What draws the rows of (seed, epoch), and how that of (seed, epoch, row) is changed."""
        return np.random.default_rng(derived_seed(self.purpose, *numbers))


@dataclass(frozen=True)
class Transforms:
    """The transforms of a run; each row is changed by the first of them that draws it, if one does."""

    in_order: Sequence[Transform]
    corpus: Dataset
    tokenizers: Sides[Tokenizer]
    max_length: int

    def __call__(
        self, pairs: EncodedPairs, src_positions: SrcPositions | None, seed: int, epoch: int
    ) -> tuple[EncodedPairs, SrcPositions | None]:
        """The pairs of an epoch and their alignment; in memory, unless nothing is changed."""
        assert pairs.rows is not None
        which = np.full(len(pairs), NONE)
        for number in reversed(range(len(self.in_order))):
            transform = self.in_order[number]
            draws = transform.generator(seed, epoch).random(len(self.corpus))
            which[draws[pairs.rows] < transform.share] = number
        indices = np.flatnonzero(which != NONE)
        if not len(indices):
            return pairs, src_positions
        fitting: list[int] = []
        new_src: list[Ids] = []
        new_tgt: list[Ids] = []
        for start in range(0, len(indices), CHUNK_SIZE):
            part = indices[start : start + CHUNK_SIZE]
            begins = [self._begin(pairs.src[index]) for index in part]
            texts = self._changed(pairs.rows[part].tolist(), which[part], seed, epoch)
            src, tgt = encode_texts(texts, self.tokenizers, begins)
            # What is empty, or too long, stays as it was.
            shortest = np.minimum(src.lengths - [*map(len, begins)], tgt.lengths)
            longest = np.maximum(src.lengths, tgt.lengths)
            for fits in np.flatnonzero((shortest > 1) & (longest <= self.max_length)).tolist():
                fitting.append(part[fits])
                new_src.append(src[fits])
                new_tgt.append(tgt[fits])
        changed = replace(
            pairs, src=pairs.src.replaced(fitting, new_src), tgt=pairs.tgt.replaced(fitting, new_tgt)
        )
        if src_positions is not None:
            old = EncodedSentences(src_positions.astype(np.int32), pairs.tgt.lengths)
            rows = []
            for index in fitting:
                rows.append(self._realigned(pairs, changed, old[index], which[index], index))
            src_positions = old.replaced(fitting, rows).ids.astype(np.int16)
        return changed, src_positions

    def _changed(self, rows: list[int], which: Integers, seed: int, epoch: int) -> Sides[list[str]]:
        """The new texts of some rows of the corpus."""
        texts = Sides(list[str](), list[str]())
        for row, number, text in zip(rows, which, pairs_of(self.corpus.select(rows)), strict=True):
            transform = self.in_order[number]
            src, tgt = transform.change(row, Sides(*text), transform.generator(seed, epoch, row))
            texts.src.append(src)
            texts.tgt.append(tgt)
        return texts

    def _begin(self, src: Ids) -> list[int]:
        """The ids before the text of a source, such as that of its direction."""
        not_text = {*self.tokenizers.src.reserved.values()}
        return [*takewhile(not_text.__contains__, src.tolist())]

    def _realigned(
        self, before: EncodedPairs, after: EncodedPairs, positions: Ids, which: int, index: int
    ) -> Ids:
        """The source positions of a changed row."""
        realign = self.in_order[which].realign
        old, new = (Sides(pairs.src[index], pairs.tgt[index]) for pairs in (before, after))
        if all(map(np.array_equal, old, new)):
            return positions
        if realign is None:
            return np.full(len(new.tgt), NONE, dtype=np.int32)
        return realign(positions, old, new)
