"""Comparing two settings that were each trained with several seeds (`mt compare --against`)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mt.evaluation.scores import NUM_RESAMPLES, Texts, metrics_of_evaluation


@dataclass(frozen=True)
class GroupDifference:
    """The scores of two groups of systems, and the significance of their difference."""

    means: list[float]
    deviations: list[float]
    """The standard deviation over the systems of each group."""
    p_value: float
    """The probability of a difference this large between equal settings, with other seeds and sentences."""


def compare_groups(
    first: Sequence[Texts], second: Sequence[Texts], references: Texts
) -> dict[str, GroupDifference]:
    """Compare two groups of at least two systems each, by the metrics of `metrics_of_evaluation`."""
    differences = {}
    for key, metric in metrics_of_evaluation(references).items():
        stats = []
        for hypotheses in (*first, *second):
            of_sentences = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
            stats.append(np.array(of_sentences, dtype=np.float64))
        differences[key] = group_difference(stats, len(first), metric._compute_score_from_stats)
    return differences


def group_difference(stats: Sequence[Any], num_first: int, compute: Callable[[Any], Any]) -> GroupDifference:
    """Compare the first systems with the others; ``stats`` are those of the same sentences, ``(N, K)`` each.

    Seeds and sentences are both drawn at random. This is min F' (Clark 1973, "The language-as-fixed-effect
    fallacy") as a t-test: the variance of the difference is that over seeds (Welch 1947) plus that over
    sentences, which is found by bootstrap resampling (Koehn 2004) because ``compute`` scores whole test sets.
    Resampling so few seeds as well would underestimate their variance, and find too many differences.
    """
    num_sentences = len(stats[0])
    chances = np.full(num_sentences, 1 / num_sentences)
    draws = np.random.default_rng(12345).multinomial(num_sentences, chances, NUM_RESAMPLES)
    # The test set itself comes first.
    weights = np.vstack([np.ones(num_sentences), draws])
    scores = np.array([[compute(row).score for row in weights @ system] for system in stats])
    groups = [scores[:num_first], scores[num_first:]]
    means = [group.mean(axis=0) for group in groups]
    gains = means[1] - means[0]
    deviations = [float(group[:, 0].std(ddof=1)) for group in groups]
    parts = [(float(gains[1:].var()), num_sentences)]
    for group, deviation in zip(groups, deviations, strict=True):
        parts.append((deviation**2 / len(group), len(group) - 1))
    return GroupDifference([float(mean[0]) for mean in means], deviations, _p_value(float(gains[0]), parts))


def _p_value(gain: float, parts: Sequence[tuple[float, int]]) -> float:
    """The two-sided p of Student's t, from the variances and degrees of freedom of independent parts."""
    variance = sum(part for part, _ in parts)
    if not gain or not variance:
        return float(not gain)
    freedom = variance**2 / sum(part**2 / number for part, number in parts)
    # With t = sqrt(freedom) * tan(angle), the density is a power of the cosine.
    angles = np.linspace(0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (freedom - 1)
    is_beyond = angles >= math.atan(abs(gain) / math.sqrt(freedom * variance))
    return float(density[is_beyond].sum() / density.sum())
