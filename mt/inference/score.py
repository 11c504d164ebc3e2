"""Scores of given translations: a model's log-probability of each of their tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mt.data.batches.batch import Batch
from mt.search.request import TeacherForced


@dataclass(frozen=True)
class ScoredPair:
    """A translation with the log-probabilities of its tokens."""

    tokens: Sequence[str]
    """The tokens of the vocabulary, including EOS."""
    log_probs: Sequence[float]
    """The natural log-probability of each token, given the source and the preceding tokens."""
    num_unknown: int
    """Tokens that are not in the vocabulary; they are scored as UNK."""

    @property
    def log_prob(self) -> float:
        """The sum of ``log_probs``; search gives a little more, without the tokens that it may not write."""
        return math.fsum(self.log_probs)


def perplexity(log_prob: float, num_tokens: int) -> float:
    """``exp(-log_prob / num_tokens)``."""
    return math.exp(min(-log_prob / num_tokens, 700.0))


def label_log_probs(model: TeacherForced, batch: Batch) -> Tensor:
    """Compute the log-probability of each label, given the preceding ones (forced decoding).

    ``(B, T)`` natural logarithms over the whole vocabulary, meaningless where a label is PAD.
    """
    logits = model.forward(batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask).float()
    # A log-softmax would need more memory, and only one of its V values would be used.
    return logits.gather(-1, batch.labels[..., None])[..., 0] - logits.logsumexp(-1)
