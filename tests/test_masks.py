"""Masks against examples written out by hand: True = may attend."""

import pytest
import torch

from mt.masks import causal_mask, padding_mask, target_mask
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID

YES, NO = True, False
IDS = torch.tensor([[7, 8, PAD_ID], [9, PAD_ID, PAD_ID], [5, 6, 7]])


def test_padding_mask_written_out() -> None:
    assert padding_mask(IDS).tolist() == [[[[YES, YES, NO]]], [[[YES, NO, NO]]], [[[YES, YES, YES]]]]


def test_causal_mask_written_out() -> None:
    assert causal_mask(3).tolist() == [[[[YES, NO, NO], [YES, YES, NO], [YES, YES, YES]]]]
    assert causal_mask(1).tolist() == [[[[YES]]]]


def test_target_mask_written_out() -> None:
    assert target_mask(IDS).tolist() == [
        [[[YES, NO, NO], [YES, YES, NO], [YES, YES, NO]]],
        [[[YES, NO, NO], [YES, NO, NO], [YES, NO, NO]]],
        [[[YES, NO, NO], [YES, YES, NO], [YES, YES, YES]]],
    ]


def test_only_pad_is_padding() -> None:
    assert len({PAD_ID, UNK_ID, BOS_ID, EOS_ID}) == 4
    ids = torch.tensor([[PAD_ID, UNK_ID, BOS_ID, EOS_ID]])
    assert padding_mask(ids).flatten().tolist() == [NO, YES, YES, YES]


def test_masks_broadcast_over_heads_and_queries() -> None:
    scores = torch.zeros(3, 4, 3, 3)  # (B, H, Tq, Tk)
    for mask in (padding_mask(IDS), causal_mask(3), target_mask(IDS)):
        assert scores.masked_fill(mask, 1.0).shape == scores.shape
        assert mask.dim() == 4


def test_all_padding_may_attend_to_nothing() -> None:
    ids = torch.full((1, 2), PAD_ID)
    assert not padding_mask(ids).any()
    assert not target_mask(ids).any()


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_masks_are_boolean_whatever_the_type_of_the_ids(dtype: torch.dtype) -> None:
    assert padding_mask(IDS.to(dtype)).equal(padding_mask(IDS))
    assert target_mask(IDS.to(dtype)).equal(target_mask(IDS))
    assert target_mask(IDS).dtype == torch.bool


def test_masks_are_made_where_the_ids_are() -> None:
    ids = IDS.to("meta")
    assert padding_mask(ids).device.type == "meta"
    assert target_mask(ids).device.type == "meta"
    assert causal_mask(3, ids.device).device.type == "meta"
