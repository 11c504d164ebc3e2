"""Greedy search, and token-by-token decoding with one hypothesis per sentence, which sampling also uses."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mt.search.constraints import ConstrainedRows
from mt.search.copying import Copying
from mt.search.hypothesis import Hypothesis, NotFiniteError
from mt.search.model import CacheT, EncoderDecoder
from mt.search.request import SearchRequest
from mt.search.vocabulary import likeliest, log_normalisers
from mt.special_tokens import BOS_ID, EOS_ID

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""Logits ``(B', V)``, the sentences of the batch that they belong to ``(B',)``, and the step, counted from 0
-> chosen ids ``(B',)``. Forbidden tokens have logits of minus infinity."""


def greedy_search(model: EncoderDecoder[CacheT], request: SearchRequest) -> list[Hypothesis]:
    """Translate a batch by the likeliest token of each step: one hypothesis for each sentence, in order."""
    return write_stepwise(model, request, lambda logits, sentences, step: likeliest(logits))


def write_stepwise(model: EncoderDecoder[CacheT], request: SearchRequest, choose: Choose) -> list[Hypothesis]:
    """Translate a batch by choosing each next token from the model's logits.

    Args:
        model: An encoder-decoder.
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
    chosen_values: list[tuple[list[int], Tensor]] = []
    finished = [False] * len(limits)
    is_done = [False] * len(limits)
    all_places = torch.arange(len(limits), device=device)
    sentences = all_places
    rows = list(range(len(limits)))
    newest = torch.full((len(limits),), BOS_ID, dtype=torch.long, device=device)
    for step in range(max(limits)):
        request.before_each_step()
        logits = copying.decode_step(model, newest, cache)
        rules.exclude(logits)
        normalisers = log_normalisers(logits) if request.with_scores else None
        rules.force(logits)
        newest = choose(logits, sentences, step)
        values = logits.gather(-1, newest[:, None]).float()
        chosen_values.append((rows, (values if normalisers is None else values - normalisers)[:, 0]))
        # Not kept while the next step computes its own.
        del logits
        ended: list[int] = []
        # In a step in which no sentence ends, the host waits for the device only here.
        for place, (row, chosen) in enumerate(zip(rows, newest.tolist(), strict=True)):
            if is_done[row]:
                continue
            finished[row] = chosen == EOS_ID
            if not finished[row]:
                ids[row].append(chosen)
            if finished[row] or len(ids[row]) == limits[row]:
                is_done[row] = True
                ended.append(place)
        places = all_places[: len(rows)]
        if ended and (references := copying.copied(places, newest)) is not None:
            positions = references.tolist()
            for place in ended:
                copied[rows[place]] = [position for position in positions[place] if position >= 0]
        stay = those_that_stay([is_done[row] for row in rows])
        if not stay:
            break
        if len(stay) < len(rows):
            places = torch.tensor(stay, device=device)
            rows = [rows[place] for place in stay]
            newest, sentences = newest.index_select(0, places), sentences.index_select(0, places)
            cache.select(places, places)
        rules.select(places, newest)
    lengths = [len(written) + has_eos for written, has_eos in zip(ids, finished, strict=True)]
    scores = _scores(chosen_values, lengths, request.with_scores)
    return [Hypothesis(*found) for found in zip(ids, scores, finished, copied, strict=True)]


def _scores(
    chosen_values: Sequence[tuple[list[int], Tensor]], lengths: Sequence[int], with_scores: bool
) -> list[float]:
    """Sum the log-probabilities of each row.

    Args:
        chosen_values: For each step, the rows and the log-probabilities of the tokens that they continue
            with, or their logits without scores.
        lengths: The number of tokens in each row; those of later steps do not count.
        with_scores: Whether the scores are needed; if not, they are NaN.
    """
    # Read all at once, because each read waits for the device.
    all_values = torch.cat([of_step for _, of_step in chosen_values])
    # A token that had to be written may have minus infinity.
    if not with_scores and bool((all_values < math.inf).all()):
        return [math.nan] * len(lengths)
    sums = [0.0] * len(lengths)
    values = iter(all_values.tolist())
    for step, (rows, _) in enumerate(chosen_values):
        for row in rows:
            value = next(values)
            if step < lengths[row]:
                sums[row] += value
    if overflowed := [row for row, total in enumerate(sums) if not total < math.inf]:
        raise NotFiniteError(overflowed)
    return sums if with_scores else [math.nan] * len(lengths)


def those_that_stay(is_done: Sequence[bool]) -> list[int]:
    """Return the positions of the sentences that stay in a batch, in order; none if all are done.

    Unfinished sentences stay, and some of the others, up to a multiple of a quarter of the next lower power
    of two: sentences leave in groups, because the cache must be copied each time.
    """
    num_left = is_done.count(False)
    if num_left == 0:
        return []
    unit = max(1, 1 << num_left.bit_length() - 1 >> 2)
    spare = min(-(-num_left // unit) * unit, len(is_done)) - num_left
    stay = []
    for place, done in enumerate(is_done):
        if not done:
            stay.append(place)
        elif spare > 0:
            stay.append(place)
            spare -= 1
    return stay
