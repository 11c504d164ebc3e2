"""Writing one token at a time: what greedy search and sampling have in common."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mt.search.constraints import NO_CONSTRAINTS, ConstrainedRows, Constraints
from mt.search.copying import Copying
from mt.search.hypothesis import Hypothesis
from mt.search.model import CacheT, EncoderDecoder
from mt.special_tokens import BOS_ID, EOS_ID

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""Logits ``(B', V)``, the sentences they belong to ``(B',)``, and the step -> chosen ids ``(B',)``."""


def write_stepwise(
    model: EncoderDecoder[CacheT],
    src_ids: Tensor,
    src_mask: Tensor,
    limits: Sequence[int],
    choose: Choose,
    *,
    keep_unk: bool = False,
    copyable: Tensor | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
) -> list[Hypothesis]:
    """Translate a batch by choosing each next token from the model's logits.

    Args:
        model: An encoder-decoder in evaluation mode.
        src_ids: ``(B, S)``.
        src_mask: ``(B, 1, 1, S)``, True where a source token is real.
        limits: For each sentence, the most tokens its translation may have, EOS included.
        choose: Picks a token for each row; forbidden tokens have logits of minus infinity.
        keep_unk: Whether the unknown-word token may be chosen anywhere.
        copyable: ``(B, S)``, True where a source word that the model does not know may be carried over, as
            the unknown-word token (`mt.search.copying`).
        constraints: What else is asked of each translation; the limits must leave room for it and for EOS.

    Returns:
        One hypothesis for each row, in order.
    """
    copying = Copying(copyable, keep_unk=keep_unk)
    device = src_ids.device
    rules = ConstrainedRows(constraints, copying, len(limits), device)
    cache = model.start_cache(model.encode(src_ids, src_mask), src_mask, max(limits))
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
            # Finished sentences leave the batch, so that the long ones do not pay for the short.
            rows = [rows[place] for place in stay]
            cache.select(places, places)
    return [Hypothesis(*found) for found in zip(ids, scores, finished, copied, strict=True)]
