"""Scores given translations by a model's log-probability of each of their tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from mt.data.batches.batch import Batch, collate
from mt.device import split_on_out_of_memory
from mt.errors import LinesError
from mt.search.request import TeacherForced

# 256 MB in float32; training never holds the logits of a whole batch at once.
_MAX_LOGITS = 2**26


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

    ``(B, T)`` natural logarithms over the whole vocabulary, meaningless where a label is PAD. Search shares
    the probability of tokens that it may not write among the others.
    """
    logits = model.forward(batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask).float()
    # A log-softmax would need more memory, and only one of its V values would be used.
    return logits.gather(-1, batch.labels[..., None])[..., 0] - logits.logsumexp(-1)


def score_targets(
    model: TeacherForced,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    device: torch.device,
    batch_tokens: int,
    vocab_size: int,
    first_line: int,
) -> list[list[float]]:
    """Compute the log-probabilities of the tokens of each target and its EOS; ids have no BOS or EOS."""

    def score_batch(places: list[int]) -> list[list[float]]:
        batch = collate([sources[place] for place in places], [targets[place] for place in places])
        rows: list[list[float]] = label_log_probs(model, batch.to(device)).tolist()
        return rows

    def halves(places: list[int]) -> tuple[list[int], list[int]]:
        if len(places) == 1:
            [place] = places
            reason = (
                f"line {first_line + place} has a pair of {len(sources[place]) + 1} source and "
                f"{len(targets[place]) + 1} target tokens that does not fit into memory. "
                "A shorter pair may fit, or compute on the CPU with --device cpu."
            )
            raise LinesError({first_line + place: reason})
        middle = len(places) // 2
        return places[:middle], places[middle:]

    lengths = [max(len(src), len(tgt)) + 1 for src, tgt in zip(sources, targets, strict=True)]
    log_probs: dict[int, list[float]] = {}
    for places in _batches(lengths, min(batch_tokens, _MAX_LOGITS // vocab_size)):
        rows = chain.from_iterable(split_on_out_of_memory(score_batch, places, halves))
        for place, row in zip(places, rows, strict=True):
            log_probs[place] = row[: len(targets[place]) + 1]
    return [log_probs[place] for place in range(len(targets))]


def _batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Group indices of similar length into batches of at most ``max_tokens``, or of a single index."""
    batches: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= max_tokens:
            batches[-1].append(place)
        else:
            batches.append([place])
    return batches
