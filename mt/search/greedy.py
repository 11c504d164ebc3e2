"""Greedy search, and decoding one token at a time with one hypothesis a sentence, as sampling does too."""

from collections.abc import Callable

import torch
from torch import Tensor

from mt.search.constraints import ConstrainedRows
from mt.search.copying import Copying
from mt.search.hypothesis import Hypothesis
from mt.search.model import CacheT, EncoderDecoder
from mt.search.request import SearchRequest
from mt.special_tokens import BOS_ID, EOS_ID

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""Logits ``(B', V)``, the sentences of the batch that they belong to ``(B',)``, and the step, counted from 0
-> chosen ids ``(B',)``. Forbidden tokens have logits of minus infinity."""


def greedy_search(model: EncoderDecoder[CacheT], request: SearchRequest) -> list[Hypothesis]:
    """Translate a batch with a model in evaluation mode: one hypothesis for each sentence, in order."""
    return write_stepwise(model, request, lambda logits, sentences, step: logits.argmax(-1))


def write_stepwise(model: EncoderDecoder[CacheT], request: SearchRequest, choose: Choose) -> list[Hypothesis]:
    """Translate a batch by choosing each next token from the model's logits.

    Args:
        model: An encoder-decoder in evaluation mode.
        request: The batch and its rules.
        choose: Picks the next token of each sentence.

    Returns:
        One hypothesis for each sentence, in order.
    """
    limits, device, src_mask = request.limits, request.src_ids.device, request.src_mask
    copying = Copying(request)
    rules = ConstrainedRows(request, copying)
    cache = model.start_cache(model.encode(request.src_ids, src_mask), src_mask, max(limits))
    ids: list[list[int]] = [[] for _ in limits]
    copied: list[list[int]] = [[] for _ in limits]
    scores = [0.0] * len(limits)
    finished = [False] * len(limits)
    rows = list(range(len(limits)))
    newest = torch.full((len(limits),), BOS_ID, dtype=torch.long, device=device)
    for step in range(max(limits)):
        logits = copying.decode_step(model, newest, cache)
        normaliser = logits.logsumexp(-1)
        rules.forbid(logits)
        newest = choose(logits, torch.tensor(rows, device=device), step)
        log_probs = logits.gather(-1, newest[:, None])[:, 0] - normaliser
        stay = []
        for place, (row, chosen, log_prob) in enumerate(
            zip(rows, newest.tolist(), log_probs.tolist(), strict=True)
        ):
            scores[row] += log_prob
            finished[row] = chosen == EOS_ID
            if not finished[row]:
                ids[row].append(chosen)
            if finished[row] or len(ids[row]) == limits[row]:
                copied[row] = copying.copied(place, chosen)
            else:
                stay.append(place)
        if not stay:
            break
        places = torch.tensor(stay, device=device)
        newest = newest.index_select(0, places)
        rules.select(places, newest)
        if len(stay) < len(rows):
            # Finished sentences leave the batch, so that no time is spent on them.
            rows = [rows[place] for place in stay]
            cache.select(places, places)
    return [Hypothesis(*found) for found in zip(ids, scores, finished, copied, strict=True)]
