"""Sampling: at each step a token drawn by its probability, sharpened or flattened by a temperature."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

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
    keep_unk: bool = False,
    copyable: Tensor | None = None,
) -> list[Hypothesis]:
    """Translate a batch by drawing.

    Args:
        model: An encoder-decoder in evaluation mode.
        src_ids: ``(B, S)``.
        src_mask: ``(B, 1, 1, S)``, True where a source token is real.
        limits: For each sentence, the most tokens its translation may have, EOS included.
        temperature: Logits are divided by it: below 1 the likely become likelier, near 0 it is greedy.
        seeds: One for each sentence, so that a sentence draws the same in whatever batch it stands.
        keep_unk: Whether the unknown-word token may be drawn anywhere.
        copyable: See `mt.search.copying`.

    Returns:
        One hypothesis for each row, in order.

    Raises:
        ValueError: If the temperature is not a number above 0.
    """
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a number above 0, not {temperature}")
    # One uniform number a step picks the token at which the summed probability passes it (inverse transform).
    uniforms = torch.stack([_uniforms(seed, max(limits)) for seed in seeds]).to(src_ids.device)

    def draw(logits: Tensor, rows: Tensor, step: int) -> Tensor:
        # The likeliest at 0, where no temperature, however small, makes it infinite.
        shifted = logits - logits.amax(-1, keepdim=True)
        cumulative = (shifted / temperature).softmax(-1).cumsum(-1)
        # Of the total that rounding left, not of 1; clamped, for the product may round up to that total.
        threshold = uniforms[rows, step, None] * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, threshold, right=True).squeeze(-1)
        return drawn.clamp(max=logits.size(-1) - 1)

    return write_stepwise(model, src_ids, src_mask, limits, draw, keep_unk=keep_unk, copyable=copyable)


def _uniforms(seed: int, count: int) -> Tensor:
    """``(count,)`` numbers from [0, 1)."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))
