"""Settings of several seeds: equal ones are seldom called different, and different ones are."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from mt.errors import ConfigError
from mt.evaluation.compare import compare_groups, group_p_value, run_comparison

NUM_SENTENCES = 200


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for a variance."""
    monkeypatch.setattr("mt.evaluation.compare.NUM_RESAMPLES", 200)


class Mean:
    """A metric that is the mean over sentences."""

    def __init__(self, total: Any) -> None:
        self.score = float(total[0]) / NUM_SENTENCES


def simulated(number: int, *, seeds: int, between_seeds: float, gain: float = 0.0) -> float:
    """p from scores of sentences: how hard each is, how good each seed is, and what is chance in both."""
    random = np.random.default_rng(number)
    sentences = random.normal(50, 20, NUM_SENTENCES)
    systems = []
    for group in range(2):
        for _ in range(seeds):
            level = random.normal(gain * group, between_seeds)
            systems.append((sentences + level + random.normal(0, 8, NUM_SENTENCES))[:, None])
    return group_p_value(systems, seeds, Mean)


@pytest.mark.parametrize(("seeds", "between_seeds"), [(2, 3.0), (3, 0.6), (3, 3.0)])
def test_of_twenty_pairs_of_equal_groups_at_most_one_is_significant(seeds: int, between_seeds: float) -> None:
    """Of 2,000 pairs, 0.6 to 4.5 % were, from 2 to 5 seeds and from 0 to 3 points between them.

    Resampling sentences alone calls more than half of the groups with 3 points between seeds different.
    """
    pairs = [simulated(number, seeds=seeds, between_seeds=between_seeds) for number in range(20)]
    assert sum(p_value < 0.05 for p_value in pairs) <= 1


def test_of_twenty_pairs_that_differ_most_are_significant() -> None:
    pairs = [simulated(number, seeds=3, between_seeds=0.6, gain=5.0) for number in range(20)]
    assert sum(p_value < 0.05 for p_value in pairs) >= 18


def test_the_p_of_many_sentences_and_seeds_is_that_of_the_normal_distribution() -> None:
    systems = np.random.default_rng(1).normal(50, 8, (60, NUM_SENTENCES, 1))
    scores = systems.mean(axis=(1, 2))
    gains = systems[30:].mean(axis=0) - systems[:30].mean(axis=0)
    variance = (scores[:30].var(ddof=1) + scores[30:].var(ddof=1)) / 30 + gains.var() / NUM_SENTENCES
    expected = 2 * NormalDist().cdf(-abs(gains.mean()) / variance**0.5)
    assert group_p_value([*systems], 30, Mean) == pytest.approx(expected, abs=0.02)


def test_groups_of_translations_by_each_metric() -> None:
    references = [
        f"der {word} Hund läuft über die Straße Nummer {i}." for i, word in enumerate("abcdefgh" * 4)
    ]
    worse = [[line.replace("läuft", "geht") for line in references[:20]] + references[20:]] * 2
    found = compare_groups(worse, [references, references], references)
    assert list(found) == ["bleu", "chrfpp", "ter"]
    assert all(p_value < 0.05 for p_value in found.values())
    assert compare_groups(worse, worse, references) == dict.fromkeys(found, 1.0)
    with pytest.raises(ConfigError, match="--against needs two systems or more on each side"):
        run_comparison(["a", "b"], against=["c"])
