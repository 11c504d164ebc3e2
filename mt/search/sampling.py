"""Sampling: at each step, a token is drawn at random according to its probability."""

from collections.abc import Sequence

import torch
from torch import Tensor

from mt.search.hypothesis import Hypothesis
from mt.search.request import CacheT, EncoderDecoder, SearchRequest
from mt.search.stepwise import Candidates, Step, search_stepwise
from mt.search.strategy import LARGEST_SEED, Sampling


def sample(
    model: EncoderDecoder[CacheT], request: SearchRequest, sampling: Sampling, numbers: Sequence[int]
) -> list[Hypothesis]:
    """Translate a batch by sampling: one hypothesis for each sentence, in order.

    The number of a sentence, for example its line, determines together with the seed what is drawn for it,
    independently of the rest of the batch.
    """
    # Neighbouring numbers must not draw what a neighbouring seed draws. The factor is odd, so that two seeds
    # never draw the same for one number.
    seeds = [(sampling.seed * 1_000_003 + number) % (LARGEST_SEED + 1) for number in numbers]
    # Inverse transform: a uniform number selects the token at which the cumulative probability exceeds it.
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    uniforms = torch.stack([torch.rand(max(request.limits), generator=generator) for generator in generators])
    uniforms = uniforms.to(request.src_ids.device)

    # Beyond these limits only the likeliest tokens are drawn, or all equally; float32 would give 0 or inf.
    temperature = min(max(sampling.temperature, 1e-30), 1e30)

    def draw(step: Step) -> Candidates:
        highest, likeliest = step.log_probs.max(-1, keepdim=True)
        # The largest becomes 0, so that a small temperature does not make it infinite.
        shifted = step.log_probs - highest
        probabilities = _likeliest(shifted / temperature, sampling.top_k).softmax(-1)
        cumulative = _nucleus(probabilities, sampling.top_p).cumsum(-1)
        # The total is not exactly 1; clamped, because the product may round up to the total.
        threshold = uniforms[step.sentences, step.number, None] * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, threshold, right=True).clamp_(max=shifted.size(-1) - 1)
        # A logit that is NaN or infinite makes all probabilities NaN. It is chosen itself, which is reported.
        return step.continued_by(drawn.where(highest.isfinite(), likeliest))

    return [drawn for [drawn] in search_stepwise(model, request, draw)]


def _likeliest(logits: Tensor, count: int) -> Tensor:
    """Set all but the ``count`` highest logits of each row ``(B, V)`` and ties to -inf; 0 keeps all."""
    if not 0 < count < logits.size(-1):
        return logits
    return logits.masked_fill(logits < logits.topk(count).values[:, -1:], -torch.inf)


def _nucleus(probabilities: Tensor, mass: float) -> Tensor:
    """Set probabilities outside the nucleus of each row ``(B, V)`` to 0; a mass of 1 keeps all."""
    if mass == 1:
        return probabilities
    ordered = probabilities.sort(descending=True).values
    # A token is in the nucleus if those before it have less than the mass, so the likeliest always is.
    is_in = ordered.cumsum(-1) - ordered < mass
    least = ordered.masked_fill(~is_in, torch.inf).amin(-1, keepdim=True)
    return probabilities.masked_fill(probabilities < least, 0.0)
