"""The cache keeps exactly the selected rows and positions."""

import pytest
import torch

from mt.transformer.cache import DecoderCache, LayerCache

B, H, S, K = 3, 2, 4, 5


def make(max_length: int = 6) -> LayerCache:
    return LayerCache(torch.randn(B, H, S, K), torch.randn(B, H, S, K), max_length)


def test_append_returns_all_positions_so_far() -> None:
    cache = make()
    keys, values = torch.randn(B, H, 3, K), torch.randn(B, H, 3, K)
    for t in range(3):
        all_keys, all_values = cache.append(keys[:, :, t : t + 1], values[:, :, t : t + 1], t)
        assert all_keys.equal(keys[:, :, : t + 1])
        assert all_values.equal(values[:, :, : t + 1])


def test_several_positions_can_be_appended_at_once() -> None:
    cache = make()
    keys = torch.randn(B, H, 5, K)
    cache.append(keys[:, :, :2], keys[:, :, :2], 0)
    all_keys, _ = cache.append(keys[:, :, 2:], keys[:, :, 2:], 2)
    assert all_keys.equal(keys)


@pytest.mark.parametrize("rows", [[0, 2], [2, 0, 1], [1, 1, 0], [2]])
def test_select_keeps_these_rows_in_this_order(rows: list[int]) -> None:
    cache = DecoderCache([make(), make()], torch.rand(B, 1, 1, S) < 0.5)
    mask, index = cache.src_mask, torch.tensor(rows)
    past, now = torch.randn(2, B, H, 1, K)
    cross = [(layer.cross_keys, layer.cross_values) for layer in cache.layers]
    for layer in cache.layers:
        layer.append(past, past + 1, 0)
    cache.length = 1
    cache.select(index, index)
    assert cache.src_mask.equal(mask[index])
    for layer, (cross_keys, cross_values) in zip(cache.layers, cross, strict=True):
        assert layer.cross_keys.equal(cross_keys[index])
        assert layer.cross_values.equal(cross_values[index])
        keys, values = layer.append(now[index], now[index], 1)
        assert keys.equal(torch.cat([past, now], dim=2)[index])
        assert values.equal(torch.cat([past + 1, now], dim=2)[index])


def test_swapped_buffers_never_show_rows_of_an_earlier_step() -> None:
    # Two buffers alternate; their old contents must not be visible.
    cache = DecoderCache([make()], torch.ones(B, 1, 1, S, dtype=torch.bool))
    [layer] = cache.layers
    past = torch.randn(B, H, 4, K)
    expected = past[:, :, :0]
    for t, rows in enumerate([[1, 0, 2], [2, 2, 0], [0, 1], [1, 1]]):
        new = past[: expected.size(0), :, t : t + 1]
        layer.append(new, new, t)
        cache.length = t + 1
        cache.select(torch.tensor(rows), None)
        expected = torch.cat([expected, new], dim=2)[rows]
    new = past[:2, :, :1]
    keys, values = layer.append(new, new, 4)
    assert keys.equal(torch.cat([expected, new], dim=2))
    assert values.equal(keys)


def test_more_rows_than_were_allocated_are_refused() -> None:
    cache = DecoderCache([make()], torch.ones(B, 1, 1, S, dtype=torch.bool))
    with pytest.raises(ValueError, match=f"a cache of {B} rows has no room for {B + 1}"):
        cache.select(torch.zeros(B + 1, dtype=torch.long), None)


def test_appending_to_a_full_cache_is_refused() -> None:
    cache = make(max_length=1)
    keys = torch.randn(B, H, 1, K)
    cache.append(keys, keys, 0)
    with pytest.raises(ValueError, match="a cache of 1 tokens has no room for 2"):
        cache.append(keys, keys, 1)


def test_cache_has_the_type_and_device_of_the_memory() -> None:
    cross = torch.empty(B, H, S, K, dtype=torch.bfloat16, device="meta")
    new = torch.empty(B, H, 1, K, dtype=torch.bfloat16, device="meta")
    keys, _ = LayerCache(cross, cross, 6).append(new, new, 0)
    assert keys.dtype == torch.bfloat16
    assert keys.device.type == "meta"
