"""Linear layers by oneDNN equal torch's, in products of few shapes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mt.config.model import ModelConfig
from mt.data.batches.batch import collate
from mt.training.loss import Objective
from mt.transformer.build import build_transformer
from mt.transformer.linear import Linear, linear, onednn_multiplies, pad_rows, unpad_rows

D, E = 12, 20
ATEN = torch.ops.aten
# Called with its inputs first.
POINTWISE = torch.ops.mkldnn._linear_pointwise.default
OF_MATRICES = (ATEN.mm.default, ATEN.mm.out, ATEN.addmm.default, ATEN.addmm_.default)
PRODUCTS = (*OF_MATRICES, ATEN.bmm.default, ATEN.baddbmm.default)


class Listener(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the shapes of oneDNN's matrix products, and counts torch's own."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: set[tuple[torch.Size, ...]] = set()
        self.num_of_torch = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func in PRODUCTS and args[-1].dtype == torch.bfloat16:
            self.shapes.add(tuple(matrix.shape for matrix in args[-2:]))
        elif func in OF_MATRICES:
            self.num_of_torch += 1
        elif func is POINTWISE:
            self.shapes.add(tuple(matrix.shape for matrix in args[:2]))
        return func(*args, **kwargs or {})


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
    monkeypatch.setattr("mt.transformer.linear.onednn_is_faster", lambda dtype: False)
    layer, x = Linear(D, E), torch.randn(3, 5, D)
    assert layer(x).equal(F.linear(x, layer.weight, layer.bias))
    assert linear(x, layer.weight, None).equal(F.linear(x, layer.weight))
    assert pad_rows(x) is x
    assert unpad_rows(x, x) is x


def test_unpadding_restores_the_rows(bf16: torch.autocast) -> None:
    x = torch.randn(3, 5, D).bfloat16()
    with bf16:
        rows = pad_rows(x)
        assert rows.shape == (32, D)
        assert rows[15:].eq(0).all()
        assert pad_rows(rows) is rows
        assert unpad_rows(rows, x).equal(x)


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(1, 32), (33, 64), (256, 256), (257, 288), (511, 512), (2000, 2048), (2049, 2304), (4085, 4096)],
)
def test_rows_are_padded_to_a_multiple_of_32_or_of_an_eighth(
    number: int, rounded: int, bf16: torch.autocast
) -> None:
    with bf16:
        assert pad_rows(torch.ones(number, D)).shape == (rounded, D)


@pytest.mark.parametrize(
    "weights",
    [{}, {"guided_alignment": 0.5}, {"r_drop": 2.0}],
    ids=["plain", "guided alignment", "R-Drop"],
)
@pytest.mark.parametrize("in_bf16", [True, False], ids=["bf16", "float32"])
def test_batches_of_many_shapes_lead_to_products_of_few_shapes(
    weights: dict[str, float], in_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a whole step, forward and backward, losses and all: 300, 312 and 304 rows become 320."""
    taken = {torch.bfloat16, torch.float32}
    monkeypatch.setattr("mt.transformer.linear.onednn_is_faster", taken.__contains__)
    # Each multiplies once, and remembers whether that was right.
    for dtype in taken:
        onednn_multiplies(dtype)
    config = ModelConfig(d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=32)
    model = build_transformer(config, src_vocab_size=40, tgt_vocab_size=40, max_length=50)
    objective = Objective(model, **weights)
    heard = []
    for rows, length in ((30, 10), (26, 12), (19, 16)):
        src, tgt, places = ([[token] * (length - 1)] * rows for token in (5, 6, 0))
        batch = collate(src, tgt, places)
        with Listener() as listener:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=in_bf16):
                loss = objective(batch, 0.1)
            loss.backward()
        heard.append(listener.shapes)
        assert listener.num_of_torch == 0
    assert heard[0] == heard[1] == heard[2]
    assert len(heard[0]) > 10
