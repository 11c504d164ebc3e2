"""Encoder and decoder against those of ``torch.nn`` with copied weights; one shape makes all sub-layers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mt.masks import causal_mask, padding_mask, target_mask
from mt.transformer.attention import MultiHeadAttention, ScaledDotProductAttention
from mt.transformer.decoder import Decoder
from mt.transformer.encoder import Encoder
from mt.transformer.feed_forward import Activation, FeedForward, feed_forward
from mt.transformer.kernels.dropout import Dropout
from mt.transformer.layer import LayerFactory, Residual

# Source and target of different lengths, so that attending to the wrong one fails.
SRC_IDS = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 0, 0], [5, 0, 0, 0, 0]])
TGT_IDS = torch.tensor([[2, 5, 6, 0], [2, 5, 6, 7], [2, 0, 0, 0]])

SHAPES = pytest.mark.parametrize(
    "shape",
    [
        LayerFactory(16, 4, 24, activation=activation, norm_first=norm_first, bias=bias)
        for norm_first in (True, False)
        for activation in ("relu", "gelu")
        for bias in (True, False)
    ],
    ids=lambda shape: f"{shape.activation}-{'pre' if shape.norm_first else 'post'}-{shape.bias}",
)


ENCODER_PARTS = {
    "self_attention": "self_attn",
    "feed_forward.inner": "linear1",
    "feed_forward.outer": "linear2",
    "self_attention_residual.norm": "norm1",
    "feed_forward_residual.norm": "norm2",
}
"""The names of the parts of a layer, here and in torch."""
DECODER_PARTS = ENCODER_PARTS | {
    "cross_attention": "multihead_attn",
    "cross_attention_residual.norm": "norm2",
    "feed_forward_residual.norm": "norm3",
}
CopyStack = Callable[[nn.Module, nn.Module, dict[str, str]], None]


@pytest.fixture
def copy_stack(copy_attention: Callable[[MultiHeadAttention, nn.MultiheadAttention], None]) -> CopyStack:
    """Writes the weights of our two layers and final norm into torch's."""

    def copy(ours: nn.Module, theirs: nn.Module, parts: dict[str, str]) -> None:
        for number in range(2):
            for name, their_name in parts.items():
                part = ours.get_submodule(f"layers.{number}.{name}")
                their_part = theirs.get_submodule(f"layers.{number}.{their_name}")
                if isinstance(part, MultiHeadAttention):
                    assert isinstance(their_part, nn.MultiheadAttention)
                    copy_attention(part, their_part)
                else:
                    their_part.load_state_dict(part.state_dict())
        if theirs.norm is not None:
            theirs.get_submodule("norm").load_state_dict(ours.get_submodule("norm").state_dict())

    return copy


def sizes(shape: LayerFactory) -> tuple[Any, ...]:
    """As torch's layers take them, with an epsilon, and with the batch first."""
    return 16, 4, 24, 0.0, shape.activation, 1e-5, True, shape.norm_first, shape.bias


def their_norm(shape: LayerFactory) -> nn.LayerNorm | None:
    """With post-norm, the last layer already ends with one."""
    return nn.LayerNorm(16, bias=shape.bias) if shape.norm_first else None


@SHAPES
def test_decoder_equals_that_of_torch(
    shape: LayerFactory,
    randomise: Callable[[nn.Module], None],
    copy_stack: CopyStack,
    assert_equal_gradients: Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], None],
) -> None:
    ours = Decoder(shape, 2).eval()
    randomise(ours)
    theirs = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes(shape)), 2, their_norm(shape)).eval()
    copy_stack(ours, theirs, DECODER_PARTS)
    x = torch.randn(3, 4, 16, requires_grad=True)
    memory = torch.randn(3, 5, 16, requires_grad=True)
    output = ours(x, memory, padding_mask(SRC_IDS), target_mask(TGT_IDS)).hidden
    their_output = theirs(
        x,
        memory,
        tgt_mask=~causal_mask(4)[0, 0],
        tgt_key_padding_mask=TGT_IDS == 0,
        memory_key_padding_mask=SRC_IDS == 0,
    )
    torch.testing.assert_close(output, their_output, atol=2e-5, rtol=1e-4)
    own = ("feed_forward.inner", "feed_forward.outer", "cross_attention.output")
    other = ("linear1", "linear2", "multihead_attn.out_proj")
    assert_equal_gradients(
        output,
        their_output,
        [x, memory, *(ours.get_parameter(f"layers.0.{name}.weight") for name in own)],
        [x, memory, *(theirs.get_parameter(f"layers.0.{name}.weight") for name in other)],
    )


@SHAPES
def test_encoder_equals_that_of_torch(
    shape: LayerFactory,
    randomise: Callable[[nn.Module], None],
    copy_stack: CopyStack,
    assert_equal_gradients: Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], None],
) -> None:
    ours = Encoder(shape, 2).eval()
    randomise(ours)
    layer = nn.TransformerEncoderLayer(*sizes(shape))
    theirs = nn.TransformerEncoder(layer, 2, their_norm(shape), enable_nested_tensor=False).eval()
    copy_stack(ours, theirs, ENCODER_PARTS)
    x = torch.randn(3, 5, 16, requires_grad=True)
    mask = padding_mask(SRC_IDS)
    output = ours(x, mask)
    their_output = theirs(x, src_key_padding_mask=~mask[:, 0, 0])
    torch.testing.assert_close(output, their_output, atol=2e-5, rtol=1e-4)
    own = ("feed_forward.inner", "feed_forward.outer", "self_attention.output")
    other = ("linear1", "linear2", "self_attn.out_proj")
    assert_equal_gradients(
        output,
        their_output,
        [x, *(ours.get_parameter(f"layers.0.{name}.weight") for name in own)],
        [x, *(theirs.get_parameter(f"layers.0.{name}.weight") for name in other)],
    )


def test_every_sublayer_has_the_dropout_of_the_shape() -> None:
    shape = LayerFactory(8, 2, 16, dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    encoder, decoder = Encoder(shape, 2), Decoder(shape, 2)
    for stack, num_sublayers in ((encoder, 2 * 2), (decoder, 3 * 2)):
        shares = sorted(m.p for m in stack.modules() if isinstance(m, Dropout))
        assert shares == [0.1] * 2 + [0.3] * num_sublayers
    for stack, num_attentions in ((encoder, 2), (decoder, 4)):
        shares = [m.dropout for m in stack.modules() if isinstance(m, ScaledDotProductAttention)]
        assert shares == [0.2] * num_attentions


def test_dropout_is_on_the_sublayer_and_never_on_the_residual_path() -> None:
    x = torch.full((100, 8), 3.0)
    output = Residual(8, dropout=0.5, norm_first=True)(x, torch.ones_like)
    assert output.unique().tolist() == [3.0, 5.0]


@pytest.mark.parametrize(
    ("activation", "by_hand"),
    [
        ("relu", lambda x: x.clamp(min=0)),
        ("gelu", lambda x: x * (1 + (x / 2**0.5).erf()) / 2),
        ("swish", lambda x: x * x.sigmoid()),
    ],
)
def test_dropout_follows_the_activation_of_the_feed_forward_network(
    activation: Activation, by_hand: Callable[[Tensor], Tensor]
) -> None:
    network = FeedForward(4, 12, activation=activation, dropout=0.3)
    x = torch.randn(2, 3, 4)
    torch.manual_seed(5)
    found = network(x)
    torch.manual_seed(5)
    torch.testing.assert_close(found, network.outer(Dropout(0.3)(by_hand(network.inner(x)))))
    # So has the plain equation.
    torch.manual_seed(5)
    plain = feed_forward(x, network.inner, network.outer, network.activation, Dropout(0.3))
    torch.testing.assert_close(found, plain)
