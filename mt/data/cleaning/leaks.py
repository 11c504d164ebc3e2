"""Leaks: evaluation sentences that are also in the training data, which inflates the scores."""

from collections.abc import Mapping
from itertools import product

import datasets
import pyarrow as pa
import pyarrow.compute as pc

from mt.data.corpus_report import LeakCounts, LeakReport
from mt.data.text_form import AS_IT_IS, TextForm

CHUNK_SIZE = 10_000

# Punctuation, symbols, spaces and control characters: texts that differ only in these and in case are equal.
LEFT_OUT = r"[\p{P}\p{S}\p{Z}\p{C}]+"

FORMS = ("exact", "normalised")
SIDES = ("source", "target", "pair")
KINDS = tuple(product(FORMS, SIDES))

# By `KINDS`. Python's own hashes are fast, have 64 bits, and are never stored.
Hashes = dict[tuple[str, str], list[int]]


class LeakCheck:
    """Finds the training pairs that are also in the evaluation splits, exactly or after normalisation."""

    def __init__(self, evaluation: Mapping[str, datasets.Dataset], form: TextForm = AS_IT_IS) -> None:
        """Remember the evaluation splits by name; ``form`` is that of the training pairs."""
        self._known: dict[str, Hashes] = {}
        self._all = {kind: set[int]() for kind in KINDS}
        self._found = {kind: set[int]() for kind in KINDS}
        for split, dataset in evaluation.items():
            known = self._known[split] = {kind: [] for kind in KINDS}
            for chunk in dataset.iter(batch_size=CHUNK_SIZE):
                for kind, hashes in _hashes(form.rewrite(chunk["src"]), form.rewrite(chunk["tgt"])).items():
                    known[kind] += hashes
                    self._all[kind].update(hashes)

    def search(self, train: datasets.Dataset) -> list[int]:
        """Record what ``train`` shares with the evaluation splits; return the rows of shared pairs."""
        rows: list[int] = []
        known_pairs = self._all["normalised", "pair"]
        for number, chunk in enumerate(train.iter(batch_size=CHUNK_SIZE)):
            hashes = _hashes(chunk["src"], chunk["tgt"])
            for kind, found in self._found.items():
                found.update(self._all[kind].intersection(hashes[kind]))
            pairs = hashes["normalised", "pair"]
            rows += [number * CHUNK_SIZE + row for row, pair in enumerate(pairs) if pair in known_pairs]
        return rows

    def report(self) -> dict[str, LeakReport]:
        """For each split, how many of its sources, targets and pairs are in the training data."""
        reports = {}
        for split, known in self._known.items():
            num_found = {kind: sum(value in self._found[kind] for value in known[kind]) for kind in KINDS}
            counts = (LeakCounts(*(num_found[form, side] for form in FORMS)) for side in SIDES)
            reports[split] = LeakReport(len(known["exact", "pair"]), *counts)
        return reports


def _hashes(src: list[str], tgt: list[str]) -> Hashes:
    hashes: Hashes = {}
    for form, *sides in (("exact", src, tgt), ("normalised", _normalised(src), _normalised(tgt))):
        sources, targets = ([hash(text) for text in side] for side in sides)
        pairs = [hash(pair) for pair in zip(sources, targets, strict=True)]
        hashes |= {(form, "source"): sources, (form, "target"): targets, (form, "pair"): pairs}
    return hashes


def _normalised(texts: list[str]) -> list[str]:
    """Lower case, without `LEFT_OUT`; a text of nothing else is kept, so that ``!`` differs from ``?``."""
    lower = pc.utf8_lower(pa.array(texts, pa.large_string()))
    words = pc.replace_substring_regex(lower, LEFT_OUT, "")
    normalised: list[str] = pc.if_else(pc.equal(words, ""), lower, words).to_pylist()
    return normalised
