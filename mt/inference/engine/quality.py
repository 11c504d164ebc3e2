"""How much BLEU a lower precision costs on validation sentences, and whether it breaks any."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from mt.data.unsegmented_scripts import bleu_tokenizer

MOST_BLEU_LOST = 0.5
"""The precision is good enough if the interval of what it changes lies above minus this."""
_NUM_RESAMPLES = 1000
_OVERLONG = 1.5
"""A translation with this many times the words of its reference, and three more, is overlong."""


@dataclass(frozen=True)
class Difference:
    """Two systems on the same sentences: the exact one, and the one in a lower precision."""

    num_sentences: int
    num_differing: int
    bleu: float
    """Of the exact one."""
    lower_bleu: float
    interval: tuple[float, float]
    """The interval of the second minus the first, by paired bootstrap (Koehn 2004)."""
    num_broken: tuple[int, int]
    """Translations that are empty, overlong, or repeat themselves, of each."""

    @property
    def is_good(self) -> bool:
        """Whether the lower precision may be used without being asked for."""
        return self.interval[0] > -MOST_BLEU_LOST and self.num_broken[1] <= self.num_broken[0]

    @property
    def is_clear(self) -> bool:
        """Whether more sentences would hardly change the decision."""
        return self.is_good or self.interval[1] < -MOST_BLEU_LOST


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, as `mt evaluate` computes it."""
    metric = BLEU(tokenize=bleu_tokenizer(references))
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)


def compare(
    exact: Sequence[str], lower: Sequence[str], references: Sequence[str], *, percent: float = 95
) -> Difference:
    """Compare translations of the same sentences, with an interval of this many percent."""
    statistics = [_statistics(each, references) for each in (exact, lower)]
    drawn = np.random.default_rng(12345).integers(len(references), size=(_NUM_RESAMPLES, len(references)))
    gains = [_bleu_of(statistics[1][rows].sum(0)) - _bleu_of(statistics[0][rows].sum(0)) for rows in drawn]
    low, high = np.percentile(gains, (50 - percent / 2, 50 + percent / 2))
    return Difference(
        len(references),
        sum(one != other for one, other in zip(exact, lower, strict=True)),
        _bleu_of(statistics[0].sum(0)),
        _bleu_of(statistics[1].sum(0)),
        (float(low), float(high)),
        (_num_broken(exact, references), _num_broken(lower, references)),
    )


def _statistics(
    hypotheses: Sequence[str], references: Sequence[str]
) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    """For each sentence the matches and n-grams of each order, and both lengths."""
    metric = BLEU(tokenize=bleu_tokenizer(references), effective_order=True)
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        score = metric.sentence_score(hypothesis, [reference])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, dtype=np.int64)


def _bleu_of(sums: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> float:
    *counts, sys_len, ref_len = sums.tolist()
    return float(BLEU.compute_bleu(counts[:4], counts[4:], sys_len, ref_len).score)


def _num_broken(hypotheses: Sequence[str], references: Sequence[str]) -> int:
    return sum(
        _is_broken(each.split(), other.split()) for each, other in zip(hypotheses, references, strict=True)
    )


def _is_broken(words: Sequence[str], reference: Sequence[str]) -> bool:
    if len(words) > _OVERLONG * len(reference) + 3 or (reference and not words):
        return True
    # Three times the same word or pair of words in a row, which the reference does not have.
    return _repeats(words) and not _repeats(reference)


def _repeats(words: Sequence[str]) -> bool:
    return any(
        words[start : start + size]
        == words[start + size : start + 2 * size]
        == words[start + 2 * size : start + 3 * size]
        for size in (1, 2)
        for start in range(len(words) - 3 * size + 1)
    )
