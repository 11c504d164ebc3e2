"""Packed linear layers against torch's own, and each row against itself among others."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.device import SearchPrecision
from mt.transformer import packed_linear
from mt.transformer.feed_forward import Activation
from mt.transformer.packed_linear import ACTIVATION_DTYPES, multiplies_int8, pack

PRECISIONS: list[SearchPrecision] = ["float32", "bf16", "fp16", "int8"]
# Relative to the largest element: bf16 has 8 bits, and int8 rounds weights and inputs to 127 levels.
TOLERANCES = {"float32": 1e-6, "bf16": 1 / 128, "fp16": 1 / 1024, "int8": 1 / 40}


@pytest.fixture
def _interfaces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_linear, "onednn_is_faster", lambda dtype: dtype != torch.float16)
    if request.param == "fallback":
        monkeypatch.setattr(packed_linear, "onednn_packs", lambda dtype: False)
        monkeypatch.setattr(packed_linear, "multiplies_int8", lambda: False)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("_interfaces", ["packed", "fallback"], indirect=True)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.usefixtures("_interfaces")
def test_a_packed_layer_computes_what_torch_does(
    precision: SearchPrecision, bias: bool, activation: Activation | None
) -> None:
    layer, x, residual = nn.Linear(48, 80, bias=bias), torch.randn(21, 48), torch.randn(21, 80)
    expected = layer(x).detach()
    if activation is not None:
        expected = F.relu(expected) if activation == "relu" else F.gelu(expected)
    dtype = ACTIVATION_DTYPES[precision]
    packed = pack(precision, layer, activation=activation)
    assert relative_error(packed(x.to(dtype)), expected) < TOLERANCES[precision]
    if activation is None:
        found = packed(x.to(dtype), residual.to(dtype))
        assert found.dtype == dtype
        assert relative_error(found, expected + residual) < TOLERANCES[precision]


@pytest.mark.parametrize("_interfaces", ["packed", "fallback"], indirect=True)
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("num_rows", [1, 2, 16, 17])
@pytest.mark.parametrize(("width", "bias"), [(80, True), (80, False), (81, True)])
@pytest.mark.usefixtures("_interfaces")
def test_few_rows_are_multiplied_on_several_threads_as_on_one(
    width: int, bias: bool, num_rows: int, num_threads: int
) -> None:
    layer, x, residual = (
        nn.Linear(48, width, bias=bias),
        torch.randn(num_rows, 48),
        torch.randn(num_rows, width),
    )
    packed, before = pack("float32", layer), torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        found = packed(x, residual.clone())
    finally:
        torch.set_num_threads(before)
    assert relative_error(found, layer(x).detach() + residual) < TOLERANCES["float32"]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_layers_of_the_same_input_are_side_by_side(precision: SearchPrecision) -> None:
    layers, x = [nn.Linear(32, width) for width in (16, 32, 8)], torch.randn(5, 32)
    dtype = ACTIVATION_DTYPES[precision]
    at_once = pack(precision, *layers)(x.to(dtype))
    expected = torch.cat([layer(x) for layer in layers], dim=-1).detach()
    assert at_once.shape == (5, 56)
    assert relative_error(at_once, expected) < TOLERANCES[precision]


@pytest.mark.parametrize("_interfaces", ["packed"], indirect=True)
@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
@pytest.mark.usefixtures("_interfaces")
def test_a_row_does_not_depend_on_its_neighbours(precision: SearchPrecision) -> None:
    packed = pack(precision, nn.Linear(256, 1024))
    x = torch.randn(64, 256).to(ACTIVATION_DTYPES[precision])
    # A neighbour with large values would change a scale that all rows share.
    x[7] *= 100
    together = packed(x)
    for row in (0, 7, 63):
        torch.testing.assert_close(packed(x[row : row + 1])[0], together[row], atol=0.0, rtol=2**-8)


def test_integers_are_multiplied_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Linear(1024, 64), torch.randn(33, 1024)
    assert multiplies_int8()
    fast = pack("int8", layer)(x)
    monkeypatch.setattr(packed_linear, "multiplies_int8", lambda: False)
    assert pack("int8", layer)(x).equal(fast)
