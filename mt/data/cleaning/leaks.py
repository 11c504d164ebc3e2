"""Leaks: evaluation sentences that are also in the training data, which inflates the scores."""

import string
from collections.abc import Mapping, Sequence
from itertools import product
from typing import cast

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mt.data.corpus_report import LeakCounts, LeakReport
from mt.data.text_form import AS_IT_IS, TextForm

CHUNK_SIZE = 10_000

# Punctuation, symbols, spaces and control characters: texts that differ only in these and in case are equal.
LEFT_OUT = r"[\p{P}\p{S}\p{Z}\p{C}]+"
NOT_IN_KEYS = bytes(set(range(256)) - set((string.digits + string.ascii_lowercase).encode()))

FORMS = ("exact", "normalised")
SIDES = ("source", "target", "pair")
KINDS = tuple(product(FORMS, SIDES))

# By `KINDS`. Python's own hashes are fast, have 64 bits, and are never stored.
Hashes = dict[tuple[str, str], list[int]]


class LeakCheck:
    """Finds the training pairs that are also in the evaluation splits, exactly or after normalisation.

    It keeps only hashes, and only those of the evaluation splits, which are small.
    """

    def __init__(self, evaluation: Mapping[str, datasets.Dataset], form: TextForm = AS_IT_IS) -> None:
        """Remember the evaluation splits by name; ``form`` is that of the training pairs."""
        self._known: dict[str, Hashes] = {}
        self._src_keys: set[bytes] = set()
        self._tgt_keys: set[bytes] = set()
        self._all = {kind: set[int]() for kind in KINDS}
        self._found = {kind: set[int]() for kind in KINDS}
        for split, dataset in evaluation.items():
            known = self._known[split] = {kind: [] for kind in KINDS}
            for chunk in _chunks(dataset):
                src, tgt = (_rewritten(chunk[side], form) for side in ("src", "tgt"))
                self._src_keys.update(_keys(src))
                self._tgt_keys.update(_keys(tgt))
                for kind, hashes in _hashes(src, tgt).items():
                    known[kind] += hashes
                    self._all[kind].update(hashes)

    def search(self, train: datasets.Dataset) -> npt.NDArray[np.int64]:
        """Record what ``train`` shares with the evaluation splits; return the rows of shared pairs."""
        rows = [np.empty(0, dtype=np.int64)]
        start = 0
        for chunk in _chunks(train):
            near = np.array(
                [
                    src in self._src_keys or tgt in self._tgt_keys
                    for src, tgt in zip(_keys(chunk["src"]), _keys(chunk["tgt"]), strict=True)
                ]
            )
            chunk_rows = start + np.flatnonzero(near)
            start += len(near)
            if not len(chunk_rows):
                continue
            suspects = chunk.filter(pa.array(near))
            hashes = _hashes(suspects["src"], suspects["tgt"])
            for kind, found in self._found.items():
                found.update(self._all[kind].intersection(hashes[kind]))
            pairs = self._all["normalised", "pair"]
            rows.append(chunk_rows[[pair in pairs for pair in hashes["normalised", "pair"]]])
        return np.concatenate(rows)

    def report(self) -> dict[str, LeakReport]:
        """For each split, how many of its sources, targets and pairs are in the training data."""
        reports = {}
        for split, known in self._known.items():
            num_found = {kind: sum(value in self._found[kind] for value in known[kind]) for kind in KINDS}
            counts = (LeakCounts(*(num_found[form, side] for form in FORMS)) for side in SIDES)
            reports[split] = LeakReport(len(known["exact", "pair"]), *counts)
        return reports


def _chunks(dataset: datasets.Dataset) -> Sequence[pa.Table]:
    return cast("Sequence[pa.Table]", dataset.with_format("arrow").iter(batch_size=CHUNK_SIZE))


def _rewritten(texts: pa.ChunkedArray, form: TextForm) -> pa.ChunkedArray:
    return pa.chunked_array([form.rewrite(texts.to_pylist())], texts.type)


def _keys(texts: pa.ChunkedArray) -> list[bytes]:
    """The letters a-z and digits of each text in lower case: equal for texts that are equal when normalised.

    The converse does not hold, but this is three times faster than normalising, and rules out nearly all
    texts without a counterpart.
    """
    lower = pc.utf8_lower(texts).cast(pa.large_binary()).to_pylist()
    return [text.translate(None, NOT_IN_KEYS) for text in lower]


def _hashes(src: pa.ChunkedArray, tgt: pa.ChunkedArray) -> Hashes:
    hashes: Hashes = {}
    for form, sides in zip(FORMS, ((src, tgt), (_normalised(src), _normalised(tgt))), strict=True):
        sources, targets = (list(map(hash, side.to_pylist())) for side in sides)
        pairs = [hash(pair) for pair in zip(sources, targets, strict=True)]
        hashes |= {(form, "source"): sources, (form, "target"): targets, (form, "pair"): pairs}
    return hashes


def _normalised(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Lower case, without `LEFT_OUT`; a text of nothing else is kept, so that ``!`` differs from ``?``."""
    lower = pc.utf8_lower(texts)
    words = pc.replace_substring_regex(lower, LEFT_OUT, "")
    return pc.if_else(pc.equal(words, ""), lower, words)
