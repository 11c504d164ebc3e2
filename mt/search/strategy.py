"""Decoding strategies with their parameters, of which a greedy search has none, and constraints on all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mt.search.hypothesis import Hypothesis

LengthNormalization = Literal["gnmt", "mean"]

LARGEST_SEED = 2**32 - 1
"""Of a larger seed, torch's generator on the CPU only uses the low 32 bits."""


@dataclass(frozen=True)
class Beam:
    """Beam search (`mt.search.beam`).

    Raises:
        ValueError: If ``size`` is below 1, ``length_penalty`` is not a finite number of at least 0, or
            ``length_normalization`` is unknown.
    """

    size: int
    """N, the number of partial hypotheses kept for each sentence."""
    length_penalty: float = 1.0
    """See `normalised_score`, by which finished hypotheses are ranked."""
    length_normalization: LengthNormalization = "gnmt"
    """See `normalised_score`."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, not {self.size}")
        if not 0 <= self.length_penalty < math.inf:
            raise ValueError(f"length_penalty must be finite and at least 0, not {self.length_penalty}")
        if self.length_normalization not in (known := get_args(LengthNormalization)):
            raise ValueError(
                f"length_normalization must be {' or '.join(known)}, not {self.length_normalization!r}"
            )

    def __str__(self) -> str:
        return f"beam of {self.size}, length penalty {self.length_penalty:g} ({self.length_normalization})"

    def normalised_score(self, hypothesis: Hypothesis) -> float:
        """Return the score by which hypotheses of different length are ranked; the length includes EOS.

        - ``gnmt``: ``score / ((5 + length) / 6) ** length_penalty`` (Wu et al. 2016, equation 14), which
          weakens the effect of the length of short hypotheses.
        - ``mean``: ``score / length ** length_penalty``, as in Hugging Face and CTranslate2; with a penalty
          of 1 it is the mean log-probability of a token.

        Each token lowers the score, so with a penalty of 0 both favour short hypotheses.
        """
        length = len(hypothesis.ids) + hypothesis.finished
        counted = length if self.length_normalization == "mean" else (5 + length) / 6
        # Not a quotient, because a large penalty would make the divisor overflow.
        return float(hypothesis.score * counted**-self.length_penalty)


@dataclass(frozen=True)
class Sampling:
    """Random sampling (`mt.search.sampling`).

    Raises:
        ValueError: If ``temperature`` is not a finite number above 0, ``seed`` is not from 0 to
            `LARGEST_SEED`, ``top_k`` is below 0, or ``top_p`` is not above 0 and at most 1.
    """

    temperature: float = 1.0
    """Divides the logits: below 1, likely tokens become likelier; near 0, sampling becomes greedy search."""
    seed: int = 1
    """Together with the number of a sentence, it determines what is drawn for that sentence."""
    top_k: int = 0
    """Sample only from this many of the likeliest tokens (Fan et al. 2018), and from ties with the last of
    them; 0 samples from all."""
    top_p: float = 1.0
    """Sample only from the nucleus: the smallest set of likeliest tokens with at least this total probability
    (Holtzman et al. 2020), after temperature and top-k; 1 samples from all."""

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be a finite number above 0, not {self.temperature}")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise ValueError(f"seed must be from 0 to {LARGEST_SEED}, not {self.seed}")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise ValueError(
                f"top_k must be at least 0 and 0 < top_p <= 1, not {self.top_k} and {self.top_p}"
            )


Strategy = Beam | Sampling | None
"""How to search for translations; None is greedy search."""


@dataclass(frozen=True)
class Constraints:
    """The constraints of one search; by default there are none.

    Raises:
        ValueError: If a number is below 0.
    """

    min_length: int = 0
    """The fewest tokens in a translation, without EOS. It may end earlier if no other token is allowed."""
    no_repeat_ngram: int = 0
    """No n-gram of this length occurs twice; 0 allows all. Two UNK never count as a repetition."""
    prefixes: Sequence[Sequence[int]] = ()
    """For each sentence, the ids its translation begins with, overriding the other rules; () for none. Lines
    have theirs as text (`mt.inference.translator`)."""

    def __post_init__(self) -> None:
        if min(self.min_length, self.no_repeat_ngram) < 0:
            raise ValueError(
                "min_length and no_repeat_ngram must be 0 or above, "
                f"not {self.min_length} and {self.no_repeat_ngram}"
            )


NO_CONSTRAINTS = Constraints()
