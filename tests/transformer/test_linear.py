"""Linear layers by oneDNN equal torch's, in products of few shapes."""

import pytest
import torch
from torch.nn import functional as F

from mt.transformer.kernels.linear import Linear, linear, on_rows, pad_rows

D, E = 12, 20


@pytest.fixture
def bf16() -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("shape", [(3, 5, D), (32, D), (2, 33, D), (1, 1, D)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_value_and_gradients_are_those_of_torch(
    shape: tuple[int, ...], bias: bool, dtype: torch.dtype, bf16: torch.autocast
) -> None:
    layer = Linear(D, E, bias=bias)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    with bf16:
        ours = layer(x)
    theirs = F.linear(x.float(), layer.weight, layer.bias)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), theirs, rtol=0.02, atol=0.02)
    direction = torch.randn_like(theirs)
    leaves = [x, *layer.parameters()]
    found = torch.autograd.grad(ours, leaves, direction.bfloat16())
    for gradient, expected, leaf in zip(
        found, torch.autograd.grad(theirs, leaves, direction), leaves, strict=True
    ):
        assert gradient.dtype == leaf.dtype
        scale = float(expected.abs().max())
        torch.testing.assert_close(gradient.float(), expected.float(), rtol=0.02, atol=0.02 * scale)


def test_where_torch_multiplies_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mt.transformer.kernels.linear.onednn_is_faster", lambda dtype: False)
    layer, x = Linear(D, E), torch.randn(3, 5, D)
    assert layer(x).equal(F.linear(x, layer.weight, layer.bias))
    assert linear(x, layer.weight, None).equal(F.linear(x, layer.weight))
    assert pad_rows(x) is x
    assert on_rows(lambda rows: rows, x) is x


def test_a_function_of_padded_rows_returns_the_rows_without_padding(bf16: torch.autocast) -> None:
    x = torch.randn(3, 5, D).bfloat16()
    with bf16:
        rows = pad_rows(x)
        assert rows.shape == (32, D)
        assert rows[15:].eq(0).all()
        assert pad_rows(rows) is rows
        assert on_rows(lambda rows: rows, x).equal(x)


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(1, 32), (33, 64), (256, 256), (257, 288), (511, 512), (2000, 2048), (2049, 2304), (4085, 4096)],
)
def test_rows_are_padded_to_a_multiple_of_32_or_of_an_eighth(
    number: int, rounded: int, bf16: torch.autocast
) -> None:
    with bf16:
        assert pad_rows(torch.ones(number, D)).shape == (rounded, D)
