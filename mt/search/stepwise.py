"""Writing one token at a time: what greedy search and sampling have in common."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mt.search.hypothesis import Hypothesis
from mt.search.model import CacheT, EncoderDecoder
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""Logits ``(B', V)``, the sentences they belong to ``(B',)``, and the step -> chosen ids ``(B',)``."""


def forbidden_ids(*, keep_unk: bool) -> list[int]:
    """What no search may choose: neither what is no text, nor, unless asked for, the unknown word."""
    return [PAD_ID, BOS_ID] if keep_unk else [PAD_ID, BOS_ID, UNK_ID]


def write_stepwise(
    model: EncoderDecoder[CacheT],
    src_ids: Tensor,
    src_mask: Tensor,
    limits: Sequence[int],
    choose: Choose,
    *,
    keep_unk: bool = False,
) -> list[Hypothesis]:
    """Translate a batch by choosing each next token from the model's logits.

    Args:
        model: An encoder-decoder in evaluation mode.
        src_ids: ``(B, S)``.
        src_mask: ``(B, 1, 1, S)``, True where a source token is real.
        limits: For each sentence, the most tokens its translation may have, EOS included.
        choose: Picks a token for each row; forbidden tokens have logits of minus infinity.
        keep_unk: Whether the unknown-word token may be chosen.

    Returns:
        One hypothesis for each row, in order.
    """
    forbidden = forbidden_ids(keep_unk=keep_unk)
    device = src_ids.device
    cache = model.start_cache(model.encode(src_ids, src_mask), src_mask, max(limits))
    ids: list[list[int]] = [[] for _ in limits]
    scores = [0.0] * len(limits)
    finished = [False] * len(limits)
    rows = list(range(len(limits)))
    newest = torch.full((len(limits),), BOS_ID, dtype=torch.long, device=device)
    for step in range(max(limits)):
        logits = model.decode_step(newest, cache).float()
        normaliser = logits.logsumexp(-1)
        logits[:, forbidden] = -torch.inf
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
                if len(ids[row]) < limits[row]:
                    stay.append(place)
        if len(stay) < len(rows):
            # Finished sentences leave the batch, so that the long ones do not pay for the short.
            if not stay:
                break
            rows = [rows[place] for place in stay]
            places = torch.tensor(stay, device=device)
            newest = newest.index_select(0, places)
            cache.select(places, places)
    return [Hypothesis(*found) for found in zip(ids, scores, finished, strict=True)]
