"""Search as documented, one sentence and one step at a time, without a cache, and ours by any strategy."""

from collections.abc import Sequence
from typing import Any

import torch

from mt.masks import padding_mask, target_mask
from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.request import SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import NO_CONSTRAINTS, Beam, Constraints, Sampling, Strategy
from mt.special_tokens import BOS_ID, EOS_ID, UNK_ID
from mt.transformer.transformer import Transformer

WORDS = range(4, 14)


def log_probs_after(
    model: Transformer,
    sentence: list[int],
    ids: Sequence[int],
    constraints: Constraints = NO_CONSTRAINTS,
    prefix: Sequence[int] = (),
    *,
    keep_unk: bool = False,
) -> dict[int, float]:
    """The log-probabilities of the tokens that may come next, which share all of it, by the rules literally.

    The next token of a given prefix keeps that in the whole vocabulary.
    """
    src_ids, tgt_ids = torch.tensor([sentence]), torch.tensor([[BOS_ID, *ids]])
    logits = model(src_ids, padding_mask(src_ids), tgt_ids, target_mask(tgt_ids))[0, -1]
    if len(ids) < len(prefix):
        return {prefix[len(ids)]: float(logits.log_softmax(-1)[prefix[len(ids)]])}
    n = constraints.no_repeat_ngram
    seen = {tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)} if n else set()
    words = [UNK_ID, *WORDS] if keep_unk else WORDS
    allowed = [i for i in words if (*ids[len(ids) - n + 1 :], i) not in seen]
    if len(ids) >= constraints.min_length or not allowed:
        allowed.append(EOS_ID)
    return dict(zip(allowed, logits[allowed].log_softmax(-1).tolist(), strict=True))


def forced_score(
    model: Transformer,
    sentence: list[int],
    found: Hypothesis,
    constraints: Constraints = NO_CONSTRAINTS,
    prefix: Sequence[int] = (),
) -> float:
    """The log-probability of a translation."""
    tokens = [*found.ids, EOS_ID] if found.finished else found.ids
    return sum(
        log_probs_after(model, sentence, tokens[:step], constraints, prefix)[token]
        for step, token in enumerate(tokens)
    )


def naive_search(
    model: Transformer,
    sentence: list[int],
    limit: int,
    constraints: Constraints = NO_CONSTRAINTS,
    prefix: Sequence[int] = (),
    *,
    keep_unk: bool = False,
) -> Hypothesis:
    """Greedy search."""
    ids, score = list[int](), 0.0
    while len(ids) < limit:
        log_probs = log_probs_after(model, sentence, ids, constraints, prefix, keep_unk=keep_unk)
        best = max(log_probs, key=lambda token: log_probs[token])
        score += log_probs[best]
        if best == EOS_ID:
            return Hypothesis(ids, score, finished=True)
        ids.append(best)
    return Hypothesis(ids, score, finished=False)


def search(model: Any, request: SearchRequest, strategy: Strategy) -> list[list[Hypothesis]]:
    """The hypotheses of each sentence by our search, whose samples are numbered from 0."""
    match strategy:
        case None:
            return [[found] for found in greedy_search(model, request)]
        case Beam():
            return beam_search(model, request, strategy)
        case Sampling():
            return [[found] for found in sample(model, request, strategy, range(len(request.limits)))]
