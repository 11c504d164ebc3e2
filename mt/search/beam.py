"""Beam search: at each step the likeliest few beginnings of each sentence (Sutskever et al. 2014)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mt.search.constraints import NO_CONSTRAINTS, ConstrainedRows, Constraints
from mt.search.copying import Copying
from mt.search.hypothesis import Hypothesis, LengthNormalization, normalised_score
from mt.search.model import CacheT, EncoderDecoder
from mt.special_tokens import BOS_ID, EOS_ID


def beam_search(
    model: EncoderDecoder[CacheT],
    src_ids: Tensor,
    src_mask: Tensor,
    limits: Sequence[int],
    *,
    beam_size: int,
    length_penalty: float = 1.0,
    length_normalization: LengthNormalization = "gnmt",
    keep_unk: bool = False,
    copyable: Tensor | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
) -> list[list[Hypothesis]]:
    """Translate a batch, keeping ``beam_size`` beginnings of each sentence.

    A beginning that continues with EOS and is among the best ``beam_size`` is a hypothesis; a sentence is
    done when it has as many hypotheses, or meets its limit. With a beam of 1 this is greedy search.

    Args:
        model: An encoder-decoder in evaluation mode.
        src_ids: ``(B, S)``.
        src_mask: ``(B, 1, 1, S)``, True where a source token is real.
        limits: For each sentence, the most tokens its translation may have, EOS included.
        beam_size: N, beginnings kept for each sentence.
        length_penalty: See `mt.search.hypothesis.normalised_score`, by which hypotheses are ranked.
        length_normalization: Likewise.
        keep_unk: Whether the unknown-word token may be chosen anywhere.
        copyable: ``(B, S)``, True where a source word that the model does not know may be carried over, as
            the unknown-word token (`mt.search.copying`).
        constraints: What else is asked of each translation; the limits must leave room for it and for EOS.

    Returns:
        For each row, its hypotheses, the best first; unfinished ones only where there is no other.
    """
    copying = Copying(copyable, keep_unk=keep_unk, rows_per_sentence=beam_size)
    device = src_ids.device
    rules = ConstrainedRows(constraints, copying, len(limits), device)
    memory = model.encode(src_ids, src_mask)
    cache = model.start_cache(memory, src_mask, max(limits), rows_per_sentence=beam_size)
    found: list[list[Hypothesis]] = [[] for _ in limits]
    sentences = list(range(len(limits)))
    # At first all beams are the same empty beginning: one of them counts.
    scores = torch.full((len(limits), beam_size), -torch.inf, device=device)
    scores[:, 0] = 0.0
    ids = torch.full((len(limits), beam_size, 1), BOS_ID, dtype=torch.long, device=device)
    for step in range(1, max(limits) + 1):
        logits = copying.decode_step(model, ids[:, :, -1].flatten(), cache)
        scores, beams, tokens = _best_continuations(logits, scores, rules)
        ids = torch.cat((_take(ids, beams), tokens[:, :, None]), dim=2)
        live = _collect_finished(ids, scores, beams, sentences, found, beam_size, copying)
        stay = [place for place, row in enumerate(sentences) if len(found[row]) < beam_size]
        for place in [place for place in stay if step == limits[sentences[place]]]:
            stay.remove(place)
            if not found[sentences[place]]:
                found[sentences[place]] = _unfinished(place, ids, scores, beams, live, copying)
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
        sorted(hypotheses, key=lambda found: -normalised_score(found, length_penalty, length_normalization))
        for hypotheses in found
    ]


def _best_continuations(
    logits: Tensor, scores: Tensor, rules: ConstrainedRows
) -> tuple[Tensor, Tensor, Tensor]:
    """The 2N likeliest continuations of each sentence, of which at most N can end it.

    Args:
        logits: ``(B * N, V)``.
        scores: ``(B, N)`` log-probabilities of the beginnings.
        rules: Say what may not be chosen.

    Returns:
        New scores, the beams continued and the tokens they continue with, each ``(B, 2N)``, best first.
    """
    # The softmax is over the whole vocabulary, also over what may not be chosen.
    log_probs = logits.log_softmax(-1)
    log_probs += scores.view(-1, 1)
    rules.forbid(log_probs)
    batch, beam_size = scores.shape
    best = log_probs.view(batch, -1).topk(2 * beam_size)
    return best.values, best.indices // logits.size(-1), best.indices % logits.size(-1)


def _collect_finished(
    ids: Tensor,
    scores: Tensor,
    beams: Tensor,
    sentences: Sequence[int],
    found: list[list[Hypothesis]],
    beam_size: int,
    copying: Copying,
) -> Tensor:
    """Take hypotheses that end with EOS; the places ``(B, N)`` of the best that do not end, to go on with."""
    ends = ids[:, :, -1] == EOS_ID
    is_hypothesis = ends[:, :beam_size] & scores[:, :beam_size].isfinite()
    for place, candidate in is_hypothesis.nonzero().tolist():
        if len(found[sentences[place]]) < beam_size:
            score = float(scores[place, candidate])
            copied = copying.copied(place * beam_size + int(beams[place, candidate]), EOS_ID)
            found[sentences[place]].append(
                Hypothesis(ids[place, candidate, 1:-1].tolist(), score, True, copied)
            )
    # A stable sort puts those that go on first, and leaves them in order.
    return ends.int().argsort(dim=1, stable=True)[:, :beam_size]


def _unfinished(
    place: int, ids: Tensor, scores: Tensor, beams: Tensor, live: Tensor, copying: Copying
) -> list[Hypothesis]:
    found = []
    for candidate in live[place].tolist():
        if scores[place, candidate].isfinite():
            tokens = ids[place, candidate, 1:].tolist()
            copied = copying.copied(place * live.size(1) + int(beams[place, candidate]), tokens[-1])
            found.append(Hypothesis(tokens, float(scores[place, candidate]), False, copied))
    return found


def _take(ids: Tensor, beams: Tensor) -> Tensor:
    """``(B, N, T)`` and ``(B, M)`` places among the N -> ``(B, M, T)``."""
    return ids.gather(1, beams[:, :, None].expand(-1, -1, ids.size(2)))
