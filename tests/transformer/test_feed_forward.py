"""The feed-forward network against equation 2 by hand."""

import math

import pytest
import torch

from mt.transformer.feed_forward import FeedForward
from mt.transformer.kernels.dropout import Dropout


@pytest.mark.parametrize("bias", [True, False])
def test_relu_network_equals_equation_2(bias: bool) -> None:
    network = FeedForward(4, 12, bias=bias)
    x = torch.randn(2, 3, 4)
    inner = x @ network.inner.weight.T + (network.inner.bias if bias else 0)
    expected = inner.clamp(min=0) @ network.outer.weight.T + (network.outer.bias if bias else 0)
    torch.testing.assert_close(network(x), expected)


def test_gelu_network_equals_the_normal_distribution_function() -> None:
    network = FeedForward(4, 12, activation="gelu")
    x = torch.randn(2, 3, 4)
    inner = network.inner(x)
    shares = 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
    torch.testing.assert_close(network(x), network.outer(inner * shares))


def test_dropout_is_between_the_two_layers() -> None:
    network = FeedForward(4, 12, dropout=0.3)
    x = torch.randn(2, 3, 4)
    torch.manual_seed(5)
    found = network(x)
    torch.manual_seed(5)
    expected = network.outer(Dropout(0.3)(network.inner(x).relu()))
    torch.testing.assert_close(found, expected)
    assert not torch.allclose(found, network.eval()(x))


def test_parameters_have_the_inner_width_and_optional_biases() -> None:
    shapes = {name: tuple(p.shape) for name, p in FeedForward(4, 12).named_parameters()}
    assert shapes == {
        "inner.weight": (12, 4),
        "inner.bias": (12,),
        "outer.weight": (4, 12),
        "outer.bias": (4,),
    }
    assert not [name for name, _ in FeedForward(4, 12, bias=False).named_parameters() if "bias" in name]


def test_each_position_is_transformed_independently() -> None:
    network = FeedForward(4, 12)
    x = torch.randn(1, 5, 4)
    torch.testing.assert_close(network(x)[:, 3], network(x[:, 3]))
