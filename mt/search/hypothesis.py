"""What a search finds, and how long it may become."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """One translation as ids, without BOS and EOS, and its log-probability."""

    ids: Sequence[int]
    score: float
    """Sum of the natural log-probabilities of its tokens, EOS included, over the whole vocabulary."""
    finished: bool
    """Whether it ended with EOS, and not because it met its limit."""
    copied: Sequence[int] = ()
    """The source position that each unknown word among the ids stands for, in order."""


def normalised_score(hypothesis: Hypothesis, length_penalty: float) -> float:
    """The score by which hypotheses of different length are ranked (Wu et al. 2016, equation 14).

    ``score / ((5 + length) / 6) ** length_penalty``, where the length counts EOS. Each token makes a score
    smaller, so that with a penalty of 0 short hypotheses win; with 1 it is almost the mean of a token.
    """
    length = len(hypothesis.ids) + hypothesis.finished
    return float(hypothesis.score / ((5 + length) / 6) ** length_penalty)


def length_limit(src_length: int, max_length: int) -> int:
    """The most tokens that a translation of ``src_length`` source tokens may have, EOS included.

    It depends on that sentence alone, never on its neighbours in a batch, and is generous: a translation
    twice as long as its source plus ten is a loop, not a sentence.
    """
    return min(2 * src_length + 10, max_length)
