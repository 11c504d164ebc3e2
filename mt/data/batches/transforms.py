"""Transforms: in each epoch some training pairs have another text, or other ids."""

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


class Row(NamedTuple):
    """A training pair: its row in the corpus, its text, its ids, and its alignment if the model learns it."""

    number: int
    text: Sides[str]
    src: Ids
    tgt: Ids
    src_positions: Ids | None


def unaligned(_: Row, after: Row) -> Ids:
    """No target token has a source position."""
    return np.full(len(after.tgt), NONE, dtype=np.int32)


@dataclass(frozen=True)
class Transform:
    """A change of a ``share`` of rows: of their text, which is then encoded again, or of their ids."""

    purpose: str
    """Names its draws, which follow from (purpose, seed, epoch, row)."""
    share: float
    change: Callable[[Row, np.random.Generator], Row]
    realign: Callable[[Row, Row], Ids] = unaligned
    """The alignment after a change of text, from the row before and the one after it."""

    def generator(self, *numbers: int) -> np.random.Generator:
        """What draws the rows of (seed, epoch), and how that of (seed, epoch, row) is changed."""
        return np.random.default_rng(derived_seed(self.purpose, *numbers))


@dataclass(frozen=True)
class Transforms:
    """The transforms of a run, in their order: those of text come before those of ids."""

    in_order: Sequence[Transform]
    corpus: Dataset
    tokenizers: Sides[Tokenizer]
    max_length: int

    def __call__(
        self, pairs: EncodedPairs, src_positions: SrcPositions | None, seed: int, epoch: int
    ) -> tuple[EncodedPairs, SrcPositions | None]:
        """The pairs of an epoch and their alignment; in memory, unless nothing is changed."""
        assert pairs.rows is not None
        chosen = []
        for transform in self.in_order:
            draws = transform.generator(seed, epoch).random(len(self.corpus))
            chosen.append(draws[pairs.rows] < transform.share)
        indices = np.flatnonzero(np.any(chosen, axis=0))
        if not len(indices):
            return pairs, src_positions
        positions = None
        if src_positions is not None:
            positions = EncodedSentences(src_positions.astype(np.int32), pairs.tgt.lengths)
        new_src: list[Ids] = []
        new_tgt: list[Ids] = []
        new_positions: list[Ids] = []
        for start in range(0, len(indices), CHUNK_SIZE):
            part = indices[start : start + CHUNK_SIZE]
            numbers = pairs.rows[part].tolist()
            texts = pairs_of(self.corpus.select(numbers))
            rows = []
            for index, number, text in zip(part, numbers, texts, strict=True):
                aligned = None
                if positions is not None:
                    aligned = positions[index]
                src, tgt = pairs.src[index], pairs.tgt[index]
                rows.append(Row(number, Sides(*text), src, tgt, aligned))
            for transform, is_chosen in zip(self.in_order, chosen, strict=True):
                self._change(rows, np.flatnonzero(is_chosen[part]), transform, seed, epoch)
            for row in rows:
                new_src.append(row.src)
                new_tgt.append(row.tgt)
                if row.src_positions is not None:
                    new_positions.append(row.src_positions)
        changed = replace(
            pairs,
            src=pairs.src.replaced(indices, new_src),
            tgt=pairs.tgt.replaced(indices, new_tgt),
        )
        if positions is not None:
            src_positions = positions.replaced(indices, new_positions).ids.astype(np.int16)
        return changed, src_positions

    def _change(self, rows: list[Row], chosen: Integers, transform: Transform, seed: int, epoch: int) -> None:
        """Change the chosen rows in place, except where a side would be empty or too long."""
        after: dict[int, Row] = {}
        rewritten = []
        begins = []
        texts = Sides(list[str](), list[str]())
        for index in chosen.tolist():
            row = rows[index]
            generator = transform.generator(seed, epoch, row.number)
            after[index] = transform.change(row, generator)
            if after[index].text != row.text:
                rewritten.append(index)
                begins.append(self._begin(row.src))
                texts.src.append(after[index].text.src)
                texts.tgt.append(after[index].text.tgt)
        encoded = encode_texts(texts, self.tokenizers, begins)
        for index, src, tgt in zip(rewritten, *encoded, strict=True):
            after[index] = after[index]._replace(src=src, tgt=tgt)
        for index, row in after.items():
            shortest = min(len(row.src) - len(self._begin(row.src)), len(row.tgt))
            longest = max(len(row.src), len(row.tgt))
            if shortest == 0 or longest >= self.max_length:
                continue
            if row.src_positions is not None and row.text != rows[index].text:
                positions = transform.realign(rows[index], row)
                row = row._replace(src_positions=positions)
            rows[index] = row

    def _begin(self, src: Ids) -> list[int]:
        """The ids before the text of a source, such as that of its direction."""
        not_text = {*self.tokenizers.src.reserved.values()}
        return [*takewhile(not_text.__contains__, src.tolist())]
