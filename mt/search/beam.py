"""Beam search: at each step the likeliest few partial hypotheses of each sentence (Sutskever et al. 2014)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mt.search.constraints import ConstrainedRows
from mt.search.copying import Copying
from mt.search.greedy import those_that_stay
from mt.search.hypothesis import Hypothesis, normalised_score
from mt.search.model import CacheT, EncoderDecoder
from mt.search.request import SearchRequest
from mt.search.strategy import Beam
from mt.search.vocabulary import block_maxima, tokens_of
from mt.special_tokens import BOS_ID, EOS_ID


def beam_search(model: EncoderDecoder[CacheT], request: SearchRequest, beam: Beam) -> list[list[Hypothesis]]:
    """Translate a batch, keeping N = ``beam.size`` partial hypotheses of each sentence.

    A partial hypothesis that continues with EOS and is among the best N is finished. A sentence is done when
    it has N finished hypotheses or reaches its limit. With N = 1 this is greedy search.

    Args:
        model: An encoder-decoder in evaluation mode.
        request: The batch and its rules.
        beam: N, and how finished hypotheses are ranked.

    Returns:
        For each sentence its hypotheses, best first; unfinished ones only if there is no finished one.
    """
    limits, device, src_mask, beam_size = request.limits, request.src_ids.device, request.src_mask, beam.size
    copying = Copying(request, rows_per_sentence=beam_size)
    rules = ConstrainedRows(request, copying)
    memory = model.encode(request.src_ids, src_mask)
    cache = model.start_cache(memory, src_mask, max(limits), rows_per_sentence=beam_size)
    found: list[list[Hypothesis]] = [[] for _ in limits]
    is_done = [False] * len(limits)
    sentences = list(range(len(limits)))
    # At first all beams hold the same empty hypothesis, so only one of them counts.
    scores = torch.full((len(limits), beam_size), -torch.inf, device=device)
    scores[:, 0] = 0.0
    ids = torch.full((len(limits), beam_size, 1), BOS_ID, dtype=torch.long, device=device)
    for step in range(1, max(limits) + 1):
        logits = copying.decode_step(model, ids[:, :, -1].flatten(), cache)
        scores, beams, tokens = _best_continuations(logits, scores, rules)
        ids = torch.cat((_take(ids, beams), tokens[:, :, None]), dim=2)
        live = _collect_finished(ids, scores, beams, sentences, is_done, found, copying)
        for place, row in enumerate(sentences):
            if not is_done[row] and (len(found[row]) == beam_size or step == limits[row]):
                is_done[row] = True
                found[row] = found[row] or _unfinished(place, ids, scores, beams, live, copying)
        stay = those_that_stay([is_done[row] for row in sentences])
        if not stay:
            break
        places = torch.tensor(stay, device=device)
        live, beams = live[places], beams[places]
        scores, ids = scores[places].gather(1, live), _take(ids[places], live)
        rows = places[:, None] * beam_size + beams.gather(1, live)
        cache.select(rows.flatten(), places if len(stay) < len(sentences) else None)
        rules.select(rows.flatten(), ids[:, :, -1].flatten())
        sentences = [sentences[place] for place in stay]
    return [
        sorted(
            hypotheses,
            key=lambda each: -normalised_score(each, beam.length_penalty, beam.length_normalization),
        )
        for hypotheses in found
    ]


def _best_continuations(
    logits: Tensor, scores: Tensor, rules: ConstrainedRows
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the 2N likeliest continuations of each sentence, of which at most N end with EOS.

    Args:
        logits: ``(B * N, V)``.
        scores: ``(B, N)`` log-probabilities of the partial hypotheses.
        rules: Which tokens are forbidden.

    Returns:
        New scores, the beams continued and the tokens they continue with, each ``(B, 2N)``, best first.
    """
    batch, beam_size = scores.shape
    vocab_size = logits.size(-1)
    batch, beam_size = scores.shape
    vocab_size = logits.size(-1)
    # The softmax is over the whole vocabulary, forbidden tokens included. This is logsumexp in half its time.
    normaliser = logits[:, :1] - logits.log_softmax(-1)[:, :1]
    added = scores.view(-1, 1) - normaliser
    rules.forbid(logits)
    # The best 2N continuations of a sentence are in the 2N blocks with the highest maxima.
    maxima = (block_maxima(logits) + added).view(batch, -1)
    num_blocks = maxima.size(1) // beam_size
    blocks = maxima.topk(min(2 * beam_size, maxima.size(1))).indices
    tokens = tokens_of(blocks % num_blocks, vocab_size)
    beams = (blocks // num_blocks).repeat_interleave(tokens.size(1) // blocks.size(1), dim=1)
    rows = beams + torch.arange(0, batch * beam_size, beam_size, device=logits.device)[:, None]
    is_token = tokens < vocab_size
    tokens.clamp_(max=vocab_size - 1)
    values = (logits[rows, tokens] + added[rows, 0]).masked_fill_(~is_token, -torch.inf)
    best = values.topk(2 * beam_size)
    return best.values, beams.gather(1, best.indices), tokens.gather(1, best.indices)


def _collect_finished(
    ids: Tensor,
    scores: Tensor,
    beams: Tensor,
    sentences: Sequence[int],
    is_done: Sequence[bool],
    found: list[list[Hypothesis]],
    copying: Copying,
) -> Tensor:
    """Add hypotheses that end with EOS to ``found``; return the places ``(B, N)`` of the best that do not."""
    ends = ids[:, :, -1] == EOS_ID
    beam_size = copying.rows_per_sentence
    is_hypothesis = ends[:, :beam_size] & scores[:, :beam_size].isfinite()
    for place, candidate in is_hypothesis.nonzero().tolist():
        if not is_done[sentences[place]] and len(found[sentences[place]]) < beam_size:
            score = float(scores[place, candidate])
            copied = copying.copied(place * beam_size + int(beams[place, candidate]), EOS_ID)
            found[sentences[place]].append(
                Hypothesis(ids[place, candidate, 1:-1].tolist(), score, True, copied)
            )
    # A stable sort puts those without EOS first and keeps their order.
    return ends.int().argsort(dim=1, stable=True)[:, :beam_size]


def _unfinished(
    place: int, ids: Tensor, scores: Tensor, beams: Tensor, live: Tensor, copying: Copying
) -> list[Hypothesis]:
    """The live hypotheses of the sentence at ``place``, which has reached its limit."""
    found = []
    for candidate in live[place].tolist():
        if scores[place, candidate].isfinite():
            tokens = ids[place, candidate, 1:].tolist()
            copied = copying.copied(place * live.size(1) + int(beams[place, candidate]), tokens[-1])
            found.append(Hypothesis(tokens, float(scores[place, candidate]), False, copied))
    return found


def _take(ids: Tensor, beams: Tensor) -> Tensor:
    """Select from ``(B, N, T)`` by ``(B, M)`` places among the N: ``(B, M, T)``."""
    return ids.gather(1, beams[:, :, None].expand(-1, -1, ids.size(2)))
