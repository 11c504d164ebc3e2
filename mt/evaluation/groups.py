"""Comparing two settings that were each trained with several seeds (`mt compare --against`)."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mt.evaluation.scores import NUM_RESAMPLES, Texts, metrics_of_evaluation


def compare_groups(first: Sequence[Texts], second: Sequence[Texts], references: Texts) -> dict[str, float]:
    """The p-value of `group_p_value` for two groups of translations, by each metric of `mt evaluate`."""
    p_values = {}
    for key, metric in metrics_of_evaluation(references).items():
        stats = []
        for hypotheses in (*first, *second):
            of_sentences = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
            stats.append(np.array(of_sentences, dtype=np.float64))
        p_values[key] = group_p_value(stats, len(first), metric._compute_score_from_stats)
    return p_values


def group_p_value(stats: Sequence[Any], num_first: int, compute: Callable[[Any], Any]) -> float:
    """The probability of such a difference between equal settings, with other seeds and other sentences.

    This is min F' (Clark 1973, "The language-as-fixed-effect fallacy") as a t-test: the variance of the
    difference is that over seeds (Welch 1947) plus that over sentences. The latter is found by bootstrap
    resampling (Koehn 2004), because ``compute`` scores whole test sets. Resampling so few seeds as well would
    underestimate their variance, and call equal settings different.

    Args:
        stats: Of each system, the statistics of the same N sentences, ``(N, K)``.
        num_first: How many systems are in the first group.
        compute: The score of statistics that were summed over sentences, ``(K,)``.
    """
    num_sentences = len(stats[0])
    chances = np.full(num_sentences, 1 / num_sentences)
    generator = np.random.default_rng(12345)
    draws = generator.multinomial(num_sentences, chances, NUM_RESAMPLES)
    # The test set itself comes first.
    weights = np.vstack([np.ones(num_sentences), draws])
    scores = []
    for system in stats:
        summed = weights @ system
        scores.append([compute(row).score for row in summed])
    first = np.array(scores[:num_first])
    second = np.array(scores[num_first:])
    gains = second.mean(axis=0) - first.mean(axis=0)
    variances = [gains[1:].var()]
    freedoms = [num_sentences]
    for group in (first, second):
        variances.append(group[:, 0].var(ddof=1) / len(group))
        freedoms.append(len(group) - 1)
    total = sum(variances)
    if not total or not gains[0]:
        return float(not gains[0])
    # Satterthwaite (1946).
    freedom = total**2 / np.sum(np.square(variances) / freedoms)
    return _two_sided(abs(gains[0]) / math.sqrt(total), freedom)


def _two_sided(t: float, freedom: float) -> float:
    """The probability that Student's t is at least as far from 0."""
    # With t = sqrt(freedom) * tan(angle), its density is a power of the cosine.
    angles = np.linspace(0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (freedom - 1)
    beyond = angles >= math.atan(t / math.sqrt(freedom))
    return float(density[beyond].sum() / density.sum())
