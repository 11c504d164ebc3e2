"""One shape makes all sub-layers; the final norm exists exactly with pre-norm."""

import pytest
import torch
from torch import nn

from mt.transformer.attention import ScaledDotProductAttention
from mt.transformer.decoder import Decoder
from mt.transformer.encoder import Encoder
from mt.transformer.feed_forward import FeedForward
from mt.transformer.kernels.dropout import Dropout
from mt.transformer.layer import LayerFactory, Residual


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
