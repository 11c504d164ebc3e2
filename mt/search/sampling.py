"""Sampling: at each step a token drawn by its probability, by a temperature, of the likeliest or of all."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mt.search.constraints import NO_CONSTRAINTS, Constraints
from mt.search.hypothesis import Hypothesis
from mt.search.model import CacheT, EncoderDecoder
from mt.search.stepwise import write_stepwise


def sample(
    model: EncoderDecoder[CacheT],
    src_ids: Tensor,
    src_mask: Tensor,
    limits: Sequence[int],
    *,
    temperature: float,
    seeds: Sequence[int],
    top_k: int = 0,
    top_p: float = 1.0,
    keep_unk: bool = False,
    copyable: Tensor | None = None,
    constraints: Constraints = NO_CONSTRAINTS,
) -> list[Hypothesis]:
    """Translate a batch by drawing.

    Args:
        model: An encoder-decoder in evaluation mode.
        src_ids: ``(B, S)``.
        src_mask: ``(B, 1, 1, S)``, True where a source token is real.
        limits: For each sentence, the most tokens its translation may have, EOS included.
        temperature: Logits are divided by it: below 1 the likely become likelier, near 0 it is greedy.
        seeds: One for each sentence, so that a sentence draws the same in whatever batch it stands.
        top_k: Draw from the likeliest so many tokens alone (Fan et al. 2018), and from what is as likely as
            the last of them; 0 draws from all.
        top_p: Draw from the nucleus alone: the fewest tokens, the likeliest first, that have this
            probability together (Holtzman et al. 2020), after temperature and top-k; 1 draws from all.
        keep_unk: Whether the unknown-word token may be drawn anywhere.
        copyable: See `mt.search.copying`.
        constraints: See `mt.search.constraints`.

    Returns:
        One hypothesis for each row, in order.

    Raises:
        ValueError: If the temperature is not a number above 0, top_k is below 0, or top_p not above 0 and at
            most 1.
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a number above 0, not {temperature}")
    if top_k < 0 or not 0 < top_p <= 1:
        raise ValueError(
            f"top_k must be 0 or above, and top_p above 0 and at most 1, not {top_k} and {top_p}"
        )
    # One uniform number a step picks the token at which the summed probability passes it (inverse transform).
    uniforms = torch.stack([_uniforms(seed, max(limits)) for seed in seeds]).to(src_ids.device)

    def draw(logits: Tensor, rows: Tensor, step: int) -> Tensor:
        # The likeliest at 0, where no temperature, however small, makes it infinite.
        shifted = logits - logits.amax(-1, keepdim=True)
        probabilities = _likeliest(shifted / temperature, top_k).softmax(-1)
        cumulative = _nucleus(probabilities, top_p).cumsum(-1)
        # Of the total that rounding left, not of 1; clamped, for the product may round up to that total.
        threshold = uniforms[rows, step, None] * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
        return drawn.clamp(max=logits.size(-1) - 1)

    return write_stepwise(
        model,
        src_ids,
        src_mask,
        limits,
        draw,
        keep_unk=keep_unk,
        copyable=copyable,
        constraints=constraints,
    )


def _likeliest(logits: Tensor, count: int) -> Tensor:
    """Minus infinity for all but the ``count`` highest of each row ``(B, V)`` and their like; 0 keeps all."""
    if not 0 < count < logits.size(-1):
        return logits
    return logits.masked_fill(logits < logits.topk(count).values[:, -1:], -torch.inf)


def _nucleus(probabilities: Tensor, mass: float) -> Tensor:
    """Nothing for what is less likely than all of the nucleus of its row ``(B, V)``; with 1 all as it is."""
    if mass == 1:
        return probabilities
    ordered = probabilities.sort(descending=True).values
    # In the nucleus is what has less than the mass before it, and so always the likeliest.
    is_in = ordered.cumsum(-1) - ordered < mass
    least = ordered.masked_fill(~is_in, torch.inf).amin(-1, keepdim=True)
    return probabilities.masked_fill(probabilities < least, 0.0)


def _uniforms(seed: int, count: int) -> Tensor:
    """``(count,)`` numbers from [0, 1)."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))
