"""Cached steps against the plain model, which decodes all positions at once."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mt.masks import padding_mask, target_mask
from mt.search.request import EncoderDecoder
from mt.special_tokens import BOS_ID
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeModel
from tests.uncached import UncachedTransformer

SRC_IDS = torch.tensor([[5, 6, 7, 8, 9, 3], [10, 6, 3, 0, 0, 0], [7, 8, 9, 10, 3, 0]])
TGT_IDS = torch.tensor([[BOS_ID, 12, 11, 5, 7], [BOS_ID, 6, 4, 0, 0], [BOS_ID, 4, 5, 6, 7]])
SRC_MASK, TGT_MASK = padding_mask(SRC_IDS), target_mask(TGT_IDS)
VARIANTS: list[dict[str, Any]] = [
    {"norm_first": True},
    {"norm_first": False, "activation": "gelu", "bias": False},
    {"tie_output": False, "num_heads": 4},
]


@pytest.fixture(params=VARIANTS, ids=str)
def model(
    request: pytest.FixtureRequest, make_model: MakeModel, randomise: Callable[[nn.Module], None]
) -> Transformer:
    found = make_model(max_length=64, **request.param)
    randomise(found)
    return found.requires_grad_(False)


Selections = list[tuple[list[int], list[int] | None]]
SELECTIONS: dict[str, Selections] = {
    "sentences leave": [
        ([0, 1, 2], None),
        ([0, 2], [0, 2]),
        ([1, 0], [1, 0]),
        ([0, 1], None),
        ([0], [0]),
    ],
    # In another order, and then fewer, before the cache grows.
    "the cache grows": [
        *[([0, 1, 2], None)] * 14,
        ([2, 0, 1], [2, 0, 1]),
        ([0, 1, 2], None),
        ([1, 2], [1, 2]),
        *[([0, 1], None)] * 20,
    ],
    "beams are reordered": [
        ([0, 0, 0, 1, 1, 1, 2, 2, 2], None),
        ([0, 0, 0, 3, 4, 5, 8, 7, 6], None),
        ([2, 1, 2, 4, 4, 3, 6, 7, 7], None),
        ([1, 0, 0, 7, 8, 6], [0, 2]),
        ([2, 1, 0, 3, 3, 3], None),
        ([0, 1, 2, 3, 4, 5], None),
        ([5, 4, 4], [1]),
        ([0, 0, 1], None),
    ],
    # Also when a sentence leaves at the same time, after several steps, and before the cache grows.
    "rows are added": [
        *[([0, 1, 2], None)] * 14,
        ([2, 2, 0, 0], [2, 0]),
        ([0, 0, 1, 3, 2, 2], None),
        ([2, 0, 1, 3, 5, 5], None),
        *[([0, 1, 2, 3, 4, 5], None)] * 3,
    ],
}
"""The rows and sentences that are kept after each step."""


@pytest.mark.parametrize("selections", SELECTIONS.values(), ids=SELECTIONS)
def test_cached_steps_equal_uncached_ones(selections: Selections, model: Transformer) -> None:
    cached, uncached = (decode(each, selections) for each in (model, UncachedTransformer(model)))
    for ours, theirs in zip(cached, uncached, strict=True):
        torch.testing.assert_close(ours, theirs)


def decode(model: EncoderDecoder[Any], selections: Selections) -> list[tuple[Tensor, Tensor]]:
    """Logits and alignment scores of each step."""
    generator = torch.Generator().manual_seed(3)
    cache = model.start_cache(model.encode(SRC_IDS, SRC_MASK), SRC_MASK)
    number, found = 3, []
    for kept, sentences in selections:
        ids = torch.randint(4, 13, (number,), generator=generator)
        logits, scores = model.decode_step(ids, cache, with_alignment=True)
        assert scores is not None
        found.append((logits, scores))
        cache.select(torch.tensor(kept), None if sentences is None else torch.tensor(sentences))
        number = len(kept)
    return found


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.03), (torch.float16, 0.004)])
def test_a_rounded_model_is_close_to_the_exact_one(
    dtype: torch.dtype, tolerance: float, make_model: MakeModel
) -> None:
    # Initial weights, unlike random ones, have logits of the size of those that are learnt.
    model = make_model(d_model=64, num_heads=4, d_ff=128).requires_grad_(False)
    expected = model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK)
    scale = float(expected.abs().max())
    model = model.to(dtype)
    forced = model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK)
    assert forced.dtype == dtype
    torch.testing.assert_close(forced.float(), expected, atol=tolerance * scale, rtol=0.0)
    cache = model.start_cache(model.encode(SRC_IDS, SRC_MASK), SRC_MASK)
    for t in range(3):
        logits = model.decode_step(TGT_IDS[:, t], cache)[0].float()
        torch.testing.assert_close(logits, expected[:, t], atol=tolerance * scale, rtol=0.0)


def test_tokens_beyond_the_positions_of_the_model_are_refused(make_model: MakeModel) -> None:
    model = make_model(max_length=4)
    with pytest.raises(ValueError, match="position 5 is beyond the 4 positions"):
        model.encode(SRC_IDS, SRC_MASK)
    cache = model.start_cache(model.encode(SRC_IDS[:, :2], SRC_MASK[..., :2]), SRC_MASK[..., :2])
    for t in range(4):
        model.decode_step(TGT_IDS[:, t], cache)
    with pytest.raises(ValueError, match="position 4 is beyond the 4 positions"):
        model.decode_step(TGT_IDS[:, 4], cache)
