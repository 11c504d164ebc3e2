"""Recorded attention weights against the fused kernel's output, torch's own module, and those of prefixes."""

from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mt.masks import padding_mask, target_mask
from mt.special_tokens import BOS_ID
from mt.transformer.attention import ScaledDotProductAttention
from mt.transformer.recording import RecordedAttention, recording_attention
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeModel

SRC_IDS = torch.tensor([[5, 6, 7, 8, 9, 3], [10, 6, 3, 0, 0, 0], [7, 8, 9, 10, 3, 0]])
TGT_IDS = torch.tensor([[BOS_ID, 12, 11, 5, 0], [BOS_ID, 6, 0, 0, 0], [BOS_ID, 4, 5, 6, 7]])
SRC_MASK, TGT_MASK = padding_mask(SRC_IDS), target_mask(TGT_IDS)
NORMS = pytest.mark.parametrize("norm_first", [True, False])


def record_forward(model: Transformer) -> RecordedAttention:
    with recording_attention(model) as recorded:
        model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK)
    return recorded


def kinds(recorded: RecordedAttention) -> list[list[list[Tensor]]]:
    return [recorded.encoder_self, recorded.decoder_self, recorded.cross]


@NORMS
def test_weights_times_values_give_the_output_of_the_fused_kernel(
    norm_first: bool, make_model: MakeModel
) -> None:
    model = make_model(norm_first=norm_first)
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def see(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        seen[module] = inputs[2], output

    for module in model.modules():
        if isinstance(module, ScaledDotProductAttention):
            module.register_forward_hook(see)
    recorded = record_forward(model)
    # In the order of computing: encoder layers, then for each decoder layer its self- and cross-attention.
    in_order = [*recorded.encoder_self]
    for pair in zip(recorded.decoder_self, recorded.cross, strict=True):
        in_order += pair
    assert len(in_order) == len(seen) == 2 + 2 * 2
    for [weights], (values, output) in zip(in_order, seen.values(), strict=True):
        torch.testing.assert_close(weights @ values, output)


@NORMS
def test_each_prefix_records_the_rows_of_the_whole_target(norm_first: bool, make_model: MakeModel) -> None:
    model = make_model(norm_first=norm_first)
    at_once = record_forward(model)
    lengths = range(1, TGT_IDS.size(1) + 1)
    with recording_attention(model) as recorded:
        memory = model.encode(SRC_IDS, SRC_MASK)
        for length in lengths:
            model.decode(TGT_IDS[:, :length], memory, SRC_MASK, TGT_MASK[:, :, :length, :length])
    for layer in range(2):
        [encoder_self] = recorded.encoder_self[layer]
        assert encoder_self.equal(at_once.encoder_self[layer][0])
        for kind, whole in ((recorded.decoder_self, at_once.decoder_self), (recorded.cross, at_once.cross)):
            for length, prefix in zip(lengths, kind[layer], strict=True):
                expected = whole[layer][0][:, :, :length, : prefix.size(-1)]
                torch.testing.assert_close(prefix, expected, atol=1e-5, rtol=1e-4)


def test_a_mask_that_is_only_a_name_is_recorded_as_the_causal_one(make_model: MakeModel) -> None:
    model, kept = make_model(), []
    # The last target has no padding.
    memory = model.encode(SRC_IDS[2:], SRC_MASK[2:])
    for mask in (TGT_MASK[2:], "causal"):
        with recording_attention(model) as recorded:
            model.decode(TGT_IDS[2:], memory, SRC_MASK[2:], mask)
        kept.append([weights for [weights] in recorded.decoder_self])
    torch.testing.assert_close(kept[0], kept[1])


def test_recording_changes_no_output_and_ends_with_the_block(make_model: MakeModel) -> None:
    model = make_model(dropout=0.3, attention_dropout=0.3).train()
    torch.manual_seed(4)
    expected = model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK)
    torch.manual_seed(4)
    with suppress(KeyError), recording_attention(model) as recorded:
        assert model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK).equal(expected)
        raise KeyError
    model(SRC_IDS, SRC_MASK, TGT_IDS, TGT_MASK)
    assert [len(calls) for kind in kinds(recorded) for calls in kind] == [1] * 6
    assert not any(calls[0].requires_grad for kind in kinds(recorded) for calls in kind)
    with torch.autocast("cpu", torch.bfloat16):
        recorded = record_forward(model)
    assert {calls[0].dtype for kind in kinds(recorded) for calls in kind} == {torch.float32}
