"""Tiny models, and how their weights are written into the layers of ``torch.nn``."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mt.config.model import ModelConfig
from mt.transformer.attention import MultiHeadAttention
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeModel

SMALL: dict[str, Any] = {
    "d_model": 16,
    "num_heads": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "d_ff": 24,
    "dropout": 0.0,
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1)


@pytest.fixture
def make_model() -> MakeModel:
    """Builds a tiny model in evaluation mode, with these changes to its config."""

    def make(
        *, src_vocab_size: int = 11, tgt_vocab_size: int = 13, max_length: int = 32, **changes: Any
    ) -> Transformer:
        config = ModelConfig(**(SMALL | changes))
        return build_transformer(
            config, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size, max_length=max_length
        ).eval()

    return make


@pytest.fixture
def randomise() -> Callable[[nn.Module], None]:
    """Draws every parameter again, biases and gains too, which a fresh model has at 0 and 1."""

    @torch.no_grad()
    def draw(module: nn.Module) -> None:
        for parameter in module.parameters():
            parameter.uniform_(-0.6, 0.6)

    return draw


@pytest.fixture
def copy_attention() -> Callable[[MultiHeadAttention, nn.MultiheadAttention], None]:
    """Writes our weights into torch's attention, which keeps query, key and value in one matrix."""

    @torch.no_grad()
    def copy(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
        inputs = (ours.query, ours.key, ours.value)
        assert theirs.in_proj_weight is not None
        theirs.in_proj_weight.copy_(torch.cat([linear.weight for linear in inputs]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        if theirs.in_proj_bias is not None:
            theirs.in_proj_bias.copy_(torch.cat([linear.bias for linear in inputs]))
            theirs.out_proj.bias.copy_(ours.output.bias)

    return copy


@pytest.fixture
def assert_equal_gradients() -> Callable[[Tensor, Tensor, list[Tensor], list[Tensor]], None]:
    """Compares the gradients of two outputs, each with respect to its own inputs."""

    def check(ours: Tensor, theirs: Tensor, our_inputs: list[Tensor], their_inputs: list[Tensor]) -> None:
        direction = torch.randn_like(ours)
        our_gradients = torch.autograd.grad(ours, our_inputs, direction)
        their_gradients = torch.autograd.grad(theirs, their_inputs, direction)
        for our_gradient, their_gradient in zip(our_gradients, their_gradients, strict=True):
            torch.testing.assert_close(our_gradient, their_gradient, atol=2e-5, rtol=1e-4)

    return check
