"""Leaks: evaluation sentences that are also in the training data, which inflates the scores."""

from collections.abc import Mapping
from itertools import chain
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from mt.data.chunks import tables_of
from mt.data.corpus_report import LeakReport
from mt.data.text_form import TextForm
from mt.sides import SIDES

# Punctuation, symbols, spaces and control characters: texts that differ only in these and in case are equal.
LEFT_OUT = r"[\p{P}\p{S}\p{Z}\p{C}]+"

# Of source, target and pair. Python's own hashes are fast, have 64 bits, and are never stored.
Hashes = tuple[list[int], list[int], list[int]]
Compared = Literal["src", "tgt", "pair"]


class LeakCheck:
    """Finds the training pairs that, normalised, are also in the evaluation splits, whose hashes it keeps."""

    def __init__(self, evaluation: Mapping[str, Dataset], form: TextForm) -> None:
        """Remember the evaluation splits by name; ``form`` is that of the training pairs."""
        self._known: dict[str, Hashes] = {}
        self._found = set[int]()
        for split, dataset in evaluation.items():
            src, tgt = (
                pa.chunked_array([form.rewrite(dataset[:][side])], pa.large_string()) for side in SIDES
            )
            self._known[split] = _hashes(src, tgt)
        self._all = {*chain(*chain(*self._known.values()))}

    def search(self, train: Dataset, by: Compared = "pair") -> npt.NDArray[np.bool_]:
        """Record what ``train`` has of the evaluation splits; return for each row if its pair or side is."""
        is_leaked = [np.empty(0, dtype=np.bool_)]
        for table in tables_of(train):
            hashes = _hashes(table["src"], table["tgt"])
            self._found |= self._all.intersection(chain(*hashes))
            compared = hashes[get_args(Compared).index(by)]
            is_leaked.append(np.array([value in self._found for value in compared]))
        return np.concatenate(is_leaked)

    def report(self) -> dict[str, LeakReport]:
        """For each split, how many of its sources, targets and pairs are in the training data."""
        reports = {}
        for split, known in self._known.items():
            num_found = (sum(value in self._found for value in side) for side in known)
            reports[split] = LeakReport(len(known[2]), *num_found)
        return reports


def _hashes(src: pa.ChunkedArray, tgt: pa.ChunkedArray) -> Hashes:
    sources = [*map(hash, _normalised(src).to_pylist())]
    # Inverted, because a text may be on both sides.
    targets = [~value for value in map(hash, _normalised(tgt).to_pylist())]
    return sources, targets, [*map(hash, zip(sources, targets, strict=True))]


def _normalised(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lower case, without `LEFT_OUT`; a text of nothing else is kept, so that ``!`` differs from ``?``."""
    lower = pc.utf8_lower(texts)
    # Most of what is left out are plain spaces, for which an expression is slow.
    words = pc.replace_substring_regex(pc.replace_substring(lower, " ", ""), LEFT_OUT, "")
    return pc.if_else(pc.equal(words, ""), lower, words)
