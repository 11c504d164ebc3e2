"""The packed model against the plain one: encoding, teacher forcing, and cached steps against uncached."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mt.device import SearchPrecision
from mt.masks import padding_mask, target_mask
from mt.search.model import EncoderDecoder
from mt.special_tokens import BOS_ID
from mt.transformer import packed_linear, packed_transformer
from mt.transformer.bag_cache import BagCache
from mt.transformer.packed_cache import KernelCache, PackedCache
from mt.transformer.packed_transformer import PackedTransformer
from mt.transformer.transformer import Transformer
from tests.uncached import UncachedTransformer

Make = Callable[..., Transformer]

SRC_IDS = torch.tensor([[5, 6, 7, 8, 9, 3], [10, 6, 3, 0, 0, 0], [7, 8, 9, 10, 3, 0]])
TGT_IDS = torch.tensor([[BOS_ID, 12, 11, 5, 7], [BOS_ID, 6, 4, 0, 0], [BOS_ID, 4, 5, 6, 7]])
SRC_MASK, TGT_MASK = padding_mask(SRC_IDS), target_mask(TGT_IDS)
VARIANTS: list[dict[str, Any]] = [
    {"norm_first": True},
    {"norm_first": False, "activation": "gelu", "bias": False},
    {"tie_output": False, "num_heads": 4},
]


@pytest.fixture(params=["MKL", "oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What multiplies in float32, as on processors where it is faster."""
    name: str = request.param
    taken = {torch.bfloat16, torch.float32} if name == "oneDNN" else {torch.bfloat16}
    monkeypatch.setattr(packed_linear, "onednn_is_faster", taken.__contains__)
    return name


@pytest.fixture(params=["kernel", "bags"])
def cache_class(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[PackedCache]:
    """What keeps keys and values in float32, as on processors where it is faster."""
    has_bags = request.param == "bags"
    monkeypatch.setattr(packed_transformer, "sums_rows_fast", lambda device: has_bags)
    monkeypatch.setattr(packed_transformer, "_SENTENCES_FOR_THE_KERNEL", 0)
    return BagCache if has_bags else KernelCache


@pytest.fixture(params=VARIANTS, ids=str)
def model(
    library: str,
    request: pytest.FixtureRequest,
    make_model: Make,
    randomise: Callable[[nn.Module], None],
) -> Transformer:
    found = make_model(max_length=64, **request.param)
    randomise(found)
    return found.requires_grad_(False)


def test_float32_encodes_and_forces_as_the_plain_model(model: Transformer) -> None:
    packed = PackedTransformer(model, "float32")
    expected = model.encode(SRC_IDS, SRC_MASK)[SRC_MASK[:, 0, 0]]
    torch.testing.assert_close(packed.encode(SRC_IDS, SRC_MASK)[SRC_MASK[:, 0, 0]], expected)
    torch.testing.assert_close(
        packed.forward(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK), model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK)
    )


Selections = list[tuple[list[int], list[int] | None]]


def assert_cached_equals_uncached(model: Transformer, selections: Selections) -> None:
    """Compare each step, after which these rows and sentences are kept, with decoding from the start."""
    packed, uncached = (
        decode(each, selections) for each in (PackedTransformer(model, "float32"), UncachedTransformer(model))
    )
    for ours, theirs in zip(packed, uncached, strict=True):
        torch.testing.assert_close(ours, theirs)


def decode(model: EncoderDecoder[Any], selections: Selections) -> list[tuple[Tensor, Tensor]]:
    """Logits and alignment scores of each step."""
    generator = torch.Generator().manual_seed(3)
    cache = model.start_cache(model.encode(SRC_IDS, SRC_MASK), SRC_MASK, len(selections))
    number, found = 3, []
    for kept, sentences in selections:
        ids = torch.randint(4, 13, (number,), generator=generator)
        step = model.decode_step(ids, cache, with_alignment=True)
        assert step.alignment_scores is not None
        found.append((step.logits, step.alignment_scores))
        cache.select(torch.tensor(kept), None if sentences is None else torch.tensor(sentences))
        number = len(kept)
    return found


@pytest.mark.usefixtures("cache_class")
def test_cached_steps_equal_uncached_ones_as_sentences_leave(model: Transformer) -> None:
    selections: Selections = [
        ([0, 1, 2], None),
        ([0, 2], [0, 2]),
        ([1, 0], [1, 0]),
        ([0, 1], None),
        ([0], [0]),
    ]
    assert_cached_equals_uncached(model, selections)


@pytest.mark.usefixtures("cache_class")
def test_cached_steps_equal_uncached_ones_as_the_cache_grows(model: Transformer) -> None:
    selections: Selections = [([0, 1, 2], None)] * 14
    # In another order, and then fewer, before the cache grows.
    selections += [([2, 0, 1], [2, 0, 1]), ([0, 1, 2], None)] + [([1, 2], [1, 2])] + [([0, 1], None)] * 20
    assert_cached_equals_uncached(model, selections)


@pytest.mark.usefixtures("cache_class")
def test_cached_steps_equal_uncached_ones_as_beams_are_reordered(model: Transformer) -> None:
    selections: Selections = [
        ([0, 0, 0, 1, 1, 1, 2, 2, 2], None),
        ([0, 0, 0, 3, 4, 5, 8, 7, 6], None),
        ([2, 1, 2, 4, 4, 3, 6, 7, 7], None),
        ([1, 0, 0, 7, 8, 6], [0, 2]),
        ([2, 1, 0, 3, 3, 3], None),
        ([0, 1, 2, 3, 4, 5], None),
        ([5, 4, 4], [1]),
        ([0, 0, 1], None),
    ]
    assert_cached_equals_uncached(model, selections)


@pytest.mark.usefixtures("cache_class")
def test_cached_steps_equal_uncached_ones_as_rows_are_added(model: Transformer) -> None:
    # Also when a sentence leaves at the same time, after several steps, and before the cache grows.
    selections: Selections = [([0, 1, 2], None)] * 14
    selections += [([2, 2, 0, 0], [2, 0]), ([0, 0, 1, 3, 2, 2], None), ([2, 0, 1, 3, 5, 5], None)]
    selections += [([0, 1, 2, 3, 4, 5], None)] * 3
    assert_cached_equals_uncached(model, selections)


@pytest.mark.parametrize(
    ("precision", "attention", "tolerance"),
    [
        ("bf16", torch.bfloat16, 0.03),
        ("bf16", torch.float32, 0.03),
        ("int8", torch.float32, 0.06),
    ],
)
def test_rounded_models_are_close_to_the_plain_one(
    precision: SearchPrecision,
    attention: torch.dtype,
    tolerance: float,
    cache_class: type[PackedCache],
    make_model: Make,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packed_transformer, "attention_dtype", lambda dtype, device: attention)
    # Initial weights, unlike random ones, have logits of the size of those that are learnt.
    model = make_model(d_model=64, num_heads=4, d_ff=128).requires_grad_(False)
    packed = PackedTransformer(model, precision)
    expected = model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK)
    scale = float(expected.abs().max())
    forced = packed.forward(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK).float()
    torch.testing.assert_close(forced, expected, atol=tolerance * scale, rtol=0.0)
    assert not forced.equal(expected)
    cache = packed.start_cache(packed.encode(SRC_IDS, SRC_MASK), SRC_MASK, 3)
    # Bags are for float32 only.
    assert type(cache) is (cache_class if attention == torch.float32 else KernelCache)
    for t in range(3):
        logits = packed.decode_step(TGT_IDS[:, t], cache).logits.float()
        torch.testing.assert_close(logits, expected[:, t], atol=tolerance * scale, rtol=0.0)


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
def test_a_source_may_have_the_greatest_length(precision: SearchPrecision, make_model: Make) -> None:
    model = make_model(max_length=SRC_IDS.size(1)).requires_grad_(False)
    packed = PackedTransformer(model, precision)
    logits = packed.forward(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK).float()
    expected = model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK)
    torch.testing.assert_close(logits, expected, atol=0.06 * float(expected.abs().max()), rtol=0.0)


@pytest.mark.parametrize("num_rows", [1, 4])
def test_the_bits_of_a_bag_do_not_depend_on_other_rows(num_rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    batch, heads, length, width = 33, 2, 7, 24
    keys, values = torch.randn(2, batch, heads, length, width, generator=generator)
    mask = torch.ones(batch, 1, 1, length, dtype=torch.bool)
    mask[0, ..., 5:] = False
    steps = torch.randn(6, batch * num_rows, 3 * heads * width, generator=generator)

    def attended(number: int, length: int) -> Tensor:
        """What the rows of the first sentences attend to at each step."""
        source = keys[:number, :, :length], values[:number, :, :length]
        cache = BagCache([source], mask[:number, ..., :length], len(steps))
        cache.grow()
        cache.attend_to_target(0, steps[0, :number])
        cache.select(torch.arange(number).repeat_interleave(num_rows), None)
        found = []
        for step in steps[1:, : number * num_rows]:
            cache.grow()
            found += [cache.attend_to_target(0, step), cache.attend_to_source(0, step[:, : heads * width])]
        return torch.stack(found)[:, :num_rows]

    assert attended(batch, length).equal(attended(1, 5))


@pytest.mark.usefixtures("cache_class")
def test_a_source_without_any_token_gives_no_nan(make_model: Make) -> None:
    packed = PackedTransformer(make_model().requires_grad_(False), "float32")
    ids = SRC_IDS.clone()
    ids[1] = 0
    mask = padding_mask(ids)
    cache = packed.start_cache(packed.encode(ids, mask), mask, 1)
    assert packed.decode_step(TGT_IDS[:, 0], cache).logits.isfinite().all()


@pytest.mark.usefixtures("cache_class")
def test_more_tokens_than_there_is_room_for_are_refused(make_model: Make) -> None:
    model = PackedTransformer(make_model(max_length=4), "float32")
    memory = model.encode(SRC_IDS[:, :2], SRC_MASK[..., :2])
    cache = model.start_cache(memory, SRC_MASK[..., :2], 1)
    model.decode_step(TGT_IDS[:, 0], cache)
    with pytest.raises(ValueError, match="a cache of 1 tokens has no room for 2"):
        model.decode_step(TGT_IDS[:, 1], cache)
    with pytest.raises(ValueError, match="position 5 is beyond the 4 positions"):
        model.encode(SRC_IDS, SRC_MASK)
    cache = model.start_cache(memory, SRC_MASK[..., :2], 5)
    for t in range(4):
        model.decode_step(TGT_IDS[:, t], cache)
    with pytest.raises(ValueError, match="position 4 is beyond the 4 positions"):
        model.decode_step(TGT_IDS[:, 4], cache)
