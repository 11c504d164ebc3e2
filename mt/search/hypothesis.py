"""Hypotheses: the translations that search finds, their scores and their length limit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mt.special_tokens import UNK_ID


class NotFiniteError(Exception):
    """The logits of ``sentences``, by their positions in the batch, are NaN or infinite."""

    def __init__(self, sentences: Sequence[int]) -> None:
        super().__init__(f"the logits of {len(sentences)} sentences are NaN or infinite")
        self.sentences = sentences


@dataclass(frozen=True)
class Hypothesis:
    """One translation, with its log-probability."""

    ids: Sequence[int]
    """The token ids, without BOS and EOS."""
    score: float
    """Sum of the natural log-probabilities of its tokens, including EOS, among those that were allowed."""
    finished: bool
    """Whether it ends with EOS; otherwise it reached its length limit."""
    copied: Sequence[int] = ()
    """The source position that each UNK among the ids refers to, in order."""
    attention: Sequence[Sequence[float]] = field(default=(), compare=False, repr=False)
    """How much each token attends to each of the source, where an engine was asked for it and gives it."""


def cut_off(scored: Sequence[tuple[Hypothesis, float]], length: int) -> list[tuple[Hypothesis, float]]:
    """Keep the first ``length`` tokens of each hypothesis, and the first of those that are then equal."""
    different: dict[tuple[tuple[int, ...], ...], tuple[Hypothesis, float]] = {}
    for hypothesis, score in scored:
        ids = hypothesis.ids[:length]
        copied = hypothesis.copied[: list(ids).count(UNK_ID)]
        finished = hypothesis.finished and len(hypothesis.ids) <= length
        cut = replace(hypothesis, ids=ids, finished=finished, copied=copied)
        different.setdefault((tuple(ids), tuple(copied)), (cut, score))
    return list(different.values())


def length_limit(src_length: int, max_length: int, *, target_ratio: float = 1.0) -> int:
    """Return the most tokens, including EOS, in a translation of ``src_length`` source tokens.

    The limit depends on that sentence alone, never on its neighbours in a batch. It is generous: a
    translation twice as long as its source plus ten is a loop, not a sentence. It grows by ``target_ratio``,
    target tokens per source token in the training data, if that is above 1, as from words to characters.
    """
    # Compared first, because with a ratio from a damaged file the product may be infinite.
    usual = min(2 * max(1.0, target_ratio) * src_length, max_length)
    return min(math.ceil(usual) + 10, max_length)
