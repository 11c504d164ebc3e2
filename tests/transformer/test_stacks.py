"""Encoder and decoder against those of ``torch.nn`` with copied weights; one shape makes all sub-layers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from mt.masks import causal_mask, padding_mask, target_mask
from mt.transformer.attention import MultiHeadAttention, ScaledDotProductAttention
from mt.transformer.decoder import Decoder, DecoderLayer
from mt.transformer.encoder import Encoder, EncoderLayer
from mt.transformer.feed_forward import FeedForward
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


@SHAPES
def test_decoder_equals_that_of_torch(
    shape: LayerFactory,
    randomise: Callable[[nn.Module], None],
    copy_attention: Callable[[MultiHeadAttention, nn.MultiheadAttention], None],
    assert_equal_gradients: Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], None],
) -> None:
    ours = Decoder(shape, 2).eval()
    randomise(ours)
    theirs = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(
            16, 4, 24, 0.0, shape.activation, 1e-5, True, shape.norm_first, shape.bias
        ),
        num_layers=2,
        norm=nn.LayerNorm(16, bias=shape.bias) if shape.norm_first else None,
    ).eval()
    for our_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
        assert isinstance(our_layer, DecoderLayer)
        assert isinstance(their_layer, nn.TransformerDecoderLayer)
        copy_attention(our_layer.self_attention, their_layer.self_attn)
        copy_attention(our_layer.cross_attention, their_layer.multihead_attn)
        their_layer.linear1.load_state_dict(our_layer.feed_forward.inner.state_dict())
        their_layer.linear2.load_state_dict(our_layer.feed_forward.outer.state_dict())
        their_layer.norm1.load_state_dict(our_layer.self_attention_residual.norm.state_dict())
        their_layer.norm2.load_state_dict(our_layer.cross_attention_residual.norm.state_dict())
        their_layer.norm3.load_state_dict(our_layer.feed_forward_residual.norm.state_dict())
    if theirs.norm is not None:
        theirs.norm.load_state_dict(ours.norm.state_dict())

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
    assert_equal_gradients(
        output,
        their_output,
        [
            x,
            memory,
            ours.get_parameter("layers.0.feed_forward.inner.weight"),
            ours.get_parameter("layers.0.cross_attention.output.weight"),
        ],
        [
            x,
            memory,
            theirs.get_parameter("layers.0.linear1.weight"),
            theirs.get_parameter("layers.0.multihead_attn.out_proj.weight"),
        ],
    )


@SHAPES
def test_encoder_equals_that_of_torch(
    shape: LayerFactory,
    randomise: Callable[[nn.Module], None],
    copy_attention: Callable[[MultiHeadAttention, nn.MultiheadAttention], None],
    assert_equal_gradients: Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], None],
) -> None:
    ours = Encoder(shape, 2).eval()
    randomise(ours)
    theirs = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(
            16, 4, 24, 0.0, shape.activation, 1e-5, True, shape.norm_first, shape.bias
        ),
        num_layers=2,
        norm=nn.LayerNorm(16, bias=shape.bias) if shape.norm_first else None,
        enable_nested_tensor=False,
    ).eval()
    for our_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
        assert isinstance(our_layer, EncoderLayer)
        assert isinstance(their_layer, nn.TransformerEncoderLayer)
        copy_attention(our_layer.self_attention, their_layer.self_attn)
        their_layer.linear1.load_state_dict(our_layer.feed_forward.inner.state_dict())
        their_layer.linear2.load_state_dict(our_layer.feed_forward.outer.state_dict())
        their_layer.norm1.load_state_dict(our_layer.self_attention_residual.norm.state_dict())
        their_layer.norm2.load_state_dict(our_layer.feed_forward_residual.norm.state_dict())
    if theirs.norm is not None:
        theirs.norm.load_state_dict(ours.norm.state_dict())

    x = torch.randn(3, 5, 16, requires_grad=True)
    mask = padding_mask(SRC_IDS)
    output = ours(x, mask)
    their_output = theirs(x, src_key_padding_mask=~mask[:, 0, 0])
    torch.testing.assert_close(output, their_output, atol=2e-5, rtol=1e-4)
    assert_equal_gradients(
        output,
        their_output,
        [
            x,
            ours.get_parameter("layers.0.feed_forward.inner.weight"),
            ours.get_parameter("layers.0.self_attention.output.weight"),
        ],
        [
            x,
            theirs.get_parameter("layers.0.linear1.weight"),
            theirs.get_parameter("layers.0.self_attn.out_proj.weight"),
        ],
    )


def test_encoder_without_positions_is_permutation_equivariant() -> None:
    encoder = Encoder(LayerFactory(16, 4, 24), 2).eval()
    x = torch.randn(2, 5, 16)
    order = torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(encoder(x[:, order], None), encoder(x, None)[:, order], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("stack", [Encoder, Decoder])
def test_final_norm_exists_exactly_with_pre_norm(stack: type[Encoder] | type[Decoder]) -> None:
    assert isinstance(stack(LayerFactory(8, 2, 16, norm_first=True), 1).norm, nn.LayerNorm)
    assert not list(stack(LayerFactory(8, 2, 16, norm_first=False), 1).norm.parameters())


@pytest.mark.parametrize("norm_first", [True, False])
def test_bias_false_leaves_no_bias_anywhere(norm_first: bool) -> None:
    shape = LayerFactory(8, 2, 16, norm_first=norm_first, bias=False)
    stacks = nn.ModuleList([Encoder(shape, 2), Decoder(shape, 2)])
    assert not [name for name, _ in stacks.named_parameters() if "bias" in name]
    shape = LayerFactory(8, 2, 16, norm_first=norm_first, bias=True)
    stacks = nn.ModuleList([Encoder(shape, 2), Decoder(shape, 2)])
    for module in stacks.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm):
            assert module.bias is not None


def test_every_sublayer_has_the_dropout_of_the_shape() -> None:
    shape = LayerFactory(8, 2, 16, dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    encoder, decoder = Encoder(shape, 2), Decoder(shape, 2)
    for stack, num_sublayers in ((encoder, 2 * 2), (decoder, 3 * 2)):
        shares = sorted(m.p for m in stack.modules() if isinstance(m, Dropout))
        assert shares == [0.1] * 2 + [0.3] * num_sublayers
    for stack, num_attentions in ((encoder, 2), (decoder, 4)):
        shares = [m.dropout for m in stack.modules() if isinstance(m, ScaledDotProductAttention)]
        assert shares == [0.2] * num_attentions


def test_layers_share_no_weights() -> None:
    parameters = list(Encoder(LayerFactory(8, 2, 16), 3).parameters())
    assert len({p.data_ptr() for p in parameters}) == len(parameters)


def test_dropout_is_on_the_sublayer_and_never_on_the_residual_path() -> None:
    x = torch.full((100, 8), 3.0)
    output = Residual(8, dropout=0.5, norm_first=True)(x, torch.ones_like)
    assert output.unique().tolist() == [3.0, 5.0]


def test_dropout_is_between_the_two_layers_of_the_feed_forward_network() -> None:
    network = FeedForward(4, 12, dropout=0.3)
    x = torch.randn(2, 3, 4)
    torch.manual_seed(5)
    found = network(x)
    torch.manual_seed(5)
    torch.testing.assert_close(found, network.outer(Dropout(0.3)(network.inner(x).relu())))
