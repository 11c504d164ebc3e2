"""Residual connections against the formulas of pre-norm and post-norm."""

import pytest
import torch
from torch.nn import functional as F

from mt.transformer.layer import Residual


def norm_by_hand(x: torch.Tensor, residual: Residual) -> torch.Tensor:
    """Mean and biased variance of each position, gain and bias of each feature."""
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * residual.norm.weight + residual.norm.bias


@pytest.fixture(params=[True, False], ids=["pre-norm", "post-norm"])
def residual(request: pytest.FixtureRequest) -> Residual:
    made = Residual(8, dropout=0.0, norm_first=request.param)
    with torch.no_grad():
        made.norm.weight.uniform_(0.5, 1.5)
        made.norm.bias.uniform_(-1, 1)
    return made


def test_residual_equals_the_formula(residual: Residual) -> None:
    x = torch.randn(2, 3, 8)
    output = residual(x, torch.sin)
    if residual.norm_first:
        expected = x + torch.sin(norm_by_hand(x, residual))
    else:
        expected = norm_by_hand(x + torch.sin(x), residual)
    torch.testing.assert_close(output, expected)


def test_gain_and_bias_are_per_feature(residual: Residual) -> None:
    assert {name: tuple(p.shape) for name, p in residual.named_parameters()} == {
        "norm.weight": (8,),
        "norm.bias": (8,),
    }


def test_dropout_is_on_the_sublayer_and_never_on_the_residual_path() -> None:
    x = torch.full((100, 8), 3.0)
    output = Residual(8, dropout=0.5, norm_first=True)(x, torch.ones_like)
    assert output.unique().tolist() == [3.0, 5.0]
    # Post-norm: the same sum, then the norm.
    residual = Residual(8, dropout=0.5, norm_first=False)
    torch.manual_seed(5)
    output = residual(x, torch.ones_like)
    torch.manual_seed(5)
    torch.testing.assert_close(output, F.layer_norm(x + residual.dropout(torch.ones_like(x)), (8,)))
    assert residual.eval()(x, torch.ones_like).eq(0).all()


def test_bias_false_leaves_the_norm_without_bias() -> None:
    names = [name for name, _ in Residual(8, dropout=0.0, norm_first=True, bias=False).named_parameters()]
    assert names == ["norm.weight"]
