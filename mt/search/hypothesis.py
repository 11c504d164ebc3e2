"""What a search finds, and how long it may become."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LengthNormalization = Literal["gnmt", "mean"]


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


def normalised_score(
    hypothesis: Hypothesis, length_penalty: float, normalization: LengthNormalization = "gnmt"
) -> float:
    """The score by which hypotheses of different length are ranked; the length counts EOS.

    - ``gnmt``: ``score / ((5 + length) / 6) ** length_penalty`` (Wu et al. 2016, equation 14), in which short
      hypotheses differ less in length than they do by themselves.
    - ``mean``: ``score / length ** length_penalty``, as Hugging Face and CTranslate2 have it; with a
      penalty of 1 the mean of a token.

    Each token makes a score smaller, so that with a penalty of 0 short hypotheses win, in both alike.
    """
    length = len(hypothesis.ids) + hypothesis.finished
    counted = length if normalization == "mean" else (5 + length) / 6
    return float(hypothesis.score / counted**length_penalty)


def length_limit(src_length: int, max_length: int, *, target_ratio: float = 1.0) -> int:
    """The most tokens that a translation of ``src_length`` source tokens may have, EOS included.

    It depends on that sentence alone, never on its neighbours in a batch, and is generous: a translation
    twice as long as its source plus ten is a loop, not a sentence. Where ``target_ratio`` says that training
    has more target tokens than source tokens, twice is twice as many as it has: a word may have five letters.
    """
    return min(math.ceil(2 * max(1.0, target_ratio) * src_length) + 10, max_length)
