"""Encoded sentence pairs: flat arrays of ids with offsets."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from mt.data.batches.sampler import Share

Ids = npt.NDArray[np.int32]
SrcPositions = npt.NDArray[np.int16]


@dataclass(frozen=True)
class EncodedSentences:
    """Raw ids of N sentences, concatenated, with neither BOS nor EOS."""

    ids: Ids
    lengths: npt.NDArray[np.int32]
    """``(N,)`` tokens of each sentence, EOS included."""

    @classmethod
    def of(cls, sentences: Sequence[Collection[int]]) -> Self:
        """Concatenate a few sentences."""
        num_tokens = np.fromiter(map(len, sentences), dtype=np.int32, count=len(sentences))
        ids = np.fromiter(chain.from_iterable(sentences), dtype=np.int32, count=int(num_tokens.sum()))
        return cls(ids, num_tokens + np.int32(1))

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """``(N + 1,)``; sentence i is ``ids[offsets[i]:offsets[i + 1]]``."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths - 1, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Ids:
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[i] for i in range(len(self)))

    def select(self, indices: npt.NDArray[np.integer]) -> Self:
        """A copy of the sentences at ``indices``, in this order."""
        selected = replace(self, lengths=self.lengths[indices])
        # How far each sentence moves, for each of its ids.
        moves = np.repeat(self.offsets[indices] - selected.offsets[:-1], selected.lengths - 1)
        return replace(selected, ids=self.ids[moves + np.arange(len(moves))])

    def replaced(self, indices: Sequence[int], sentences: Sequence[Ids]) -> Self:
        """A copy with other sentences at ``indices``."""
        new = EncodedSentences.of(sentences)
        both = replace(
            self, ids=np.concatenate([self.ids, new.ids]), lengths=np.concatenate([self.lengths, new.lengths])
        )
        order = np.arange(len(self))
        order[[*indices]] = len(self) + np.arange(len(new))
        return both.select(order)


@dataclass(frozen=True)
class EncodedPairs:
    """Sentence pairs of one split; ``tgt[i]`` translates ``src[i]``."""

    src: EncodedSentences
    tgt: EncodedSentences
    shares: tuple[Share, ...] = ()
    """The sources that the pairs come from, in order; if empty, all have weight 1."""
    rows: Ids | None = None
    """``(N,)``, where in the text each pair is, if that is known."""
    src_positions: SrcPositions | None = None
    """The source position of each of ``tgt.ids``, or -1, if the model learns it (`alignment.align`)."""

    def __len__(self) -> int:
        return len(self.src)

    @property
    def target_ratio(self) -> float:
        """Target tokens divided by source tokens over all pairs, EOS included."""
        return float(self.tgt.lengths.sum(dtype="int64") / self.src.lengths.sum(dtype="int64"))

    def select(self, indices: npt.NDArray[np.integer]) -> tuple[EncodedSentences, EncodedSentences]:
        """Sources and targets at ``indices``, as `collate` takes them."""
        return self.src.select(indices), self.tgt.select(indices)


def mapped(path: Path, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """A file of numbers of this type as an array ``(N,)``, memory-mapped."""
    if path.stat().st_size == 0:  # An empty file cannot be mapped.
        return np.empty(0, dtype=kind)
    # A plain array, because slicing a `memmap` is slow.
    return np.asarray(np.memmap(path, dtype=kind, mode="r"))
