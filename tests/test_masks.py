"""Masks against examples written out by hand: True = may attend."""

import math

import pytest
import torch

from mt.masks import causal_mask, padding_mask, target_mask
from mt.special_tokens import PAD_ID
from mt.transformer.kernels.attention import as_bias

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


def test_a_bias_adds_nothing_to_real_tokens_and_leaves_nothing_of_padding() -> None:
    bias = as_bias(padding_mask(IDS), torch.float32)
    assert bias.tolist() == [[[[0.0, 0.0, -math.inf]]], [[[0.0, -math.inf, -math.inf]]], [[[0.0, 0.0, 0.0]]]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8])
def test_masks_are_boolean_whatever_the_type_of_the_ids(dtype: torch.dtype) -> None:
    assert padding_mask(IDS.to(dtype)).equal(padding_mask(IDS))
    assert target_mask(IDS.to(dtype)).equal(target_mask(IDS))
    assert target_mask(IDS).dtype == torch.bool
