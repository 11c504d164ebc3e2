"""Beam search: keeps the few likeliest partial hypotheses of each sentence (Sutskever et al. 2014)."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from mt.search.hypothesis import Hypothesis
from mt.search.request import CacheT, EncoderDecoder, SearchRequest
from mt.search.stepwise import Candidates, Step, search_stepwise
from mt.search.strategy import Beam
from mt.search.top_k import top_k
from mt.special_tokens import EOS_ID, PAD_ID


def beam_search(model: EncoderDecoder[CacheT], request: SearchRequest, beam: Beam) -> list[list[Hypothesis]]:
    """Translate a batch, keeping N = ``beam.size`` partial hypotheses of each sentence.

    A partial hypothesis that continues with EOS and is among the best N is finished. A sentence is done when
    it has N finished hypotheses or more, of which the best N are kept, or when it reaches its limit. With
    N = 1 this is greedy search. Hypotheses are returned best first, unfinished ones only if there is no
    finished one.
    """
    prefixes = request.constraints.prefixes or [()] * len(request.limits)
    prefix_lengths = torch.tensor([len(prefix) for prefix in prefixes], device=request.src_ids.device)

    def choose(step: Step) -> Candidates:
        candidates = _likeliest(step, beam.size)
        if request.constraints.prefixes and step.number > 0:
            return _after_prefix(candidates, prefix_lengths[step.sentences] == step.number)
        return candidates

    # Ranked by the log-probability divided by ((5 + length) / 6)**penalty, or as `Beam` says.
    hypotheses = search_stepwise(model, replace(request, with_scores=True), choose, num_rows=beam.size)
    return [
        sorted(of_sentence, key=beam.normalised_score, reverse=True)[: beam.size]
        for of_sentence in hypotheses
    ]


def _likeliest(step: Step, beam_size: int) -> Candidates:
    """The 2N likeliest continuations of each sentence, of which at most N end with EOS."""
    (all_rows, vocab_size), batch = step.log_probs.shape, len(step.sentences)
    scores = (step.scores + step.log_probs).view(batch, -1)
    # A single row may have fewer continuations than that.
    scores = F.pad(scores, (0, max(0, 2 * beam_size - scores.size(1))), value=-torch.inf)
    best, continuations = top_k(scores, 2 * beam_size)
    # A continuation is a row of its sentence * V + a token; those that were padded stay in range.
    continuations.clamp_(max=all_rows // batch * vocab_size - 1)
    first_rows = torch.arange(0, all_rows, all_rows // batch, device=best.device)[:, None]
    return Candidates(continuations % vocab_size, best, first_rows + continuations // vocab_size)


def _after_prefix(candidates: Candidates, is_after: Tensor) -> Candidates:
    """Where ``is_after`` ``(B,)`` is true, EOS ends a hypothesis only if that is the best.

    A beam starts again with one hypothesis after a given prefix, where short ones would crowd out the others.
    CTranslate2 has the same rule.
    """
    is_late_end = (candidates.tokens == EOS_ID) & is_after[:, None]
    is_late_end[:, 0] = False
    return candidates._replace(
        tokens=candidates.tokens.masked_fill(is_late_end, PAD_ID),
        scores=candidates.scores.masked_fill(is_late_end, -torch.inf),
    )
