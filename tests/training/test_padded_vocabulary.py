"""Outputs that are added to make a GPU faster are part of the products, and of nothing else."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mt.special_tokens import PAD_ID
from mt.training.loss import r_drop_loss, smoothed_cross_entropy
from mt.transformer.kernels import linear

N, D, V = 9, 16, 21
PADDED = 24
LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": smoothed_cross_entropy,
    "R-Drop": partial(r_drop_loss, alpha=2.0),
}


@pytest.fixture
def padding(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Adds outputs on a CPU, as on a GPU."""
    # oneDNN's products are not among those that are looked at, and no GPU has it.
    monkeypatch.setattr(linear, "onednn_is_faster", lambda dtype: dtype == torch.bfloat16)
    return lambda: monkeypatch.setitem(linear.OUTPUTS_TOGETHER, "cpu", 8)


class Widths(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes all sizes of the operands of matrix products."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.__name__.split(".")[0] in ("mm", "addmm", "addmm_"):
            self.found |= {size for each in args for size in each.shape}
        return func(*args, **(kwargs or {}))


def loss_and_gradients(loss: Callable[..., Tensor], num_passes: int, autocast: bool) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(2)
    shape = (N, D) if num_passes == 1 else (num_passes, N, D)
    hidden = torch.randn(shape, generator=generator).requires_grad_()
    weight = torch.randn(V, D, generator=generator).requires_grad_()
    labels = torch.randint(4, V, (N,), generator=generator)
    labels[::4] = PAD_ID
    with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
        value = loss(hidden, weight, labels, 0.1)
    value.backward()  # type: ignore[no-untyped-call]
    assert hidden.grad is not None
    assert weight.grad is not None
    return value.detach(), hidden.grad, weight.grad


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_and_no_gradient_knows_of_them(
    name: str, autocast: bool, padding: Callable[[], None]
) -> None:
    num_passes = 1 if name == "cross-entropy" else 2
    with Widths() as widths:
        expected = loss_and_gradients(LOSSES[name], num_passes, autocast)
    assert V in widths.found
    padding()
    with Widths() as widths:
        found = loss_and_gradients(LOSSES[name], num_passes, autocast)
    assert V not in widths.found
    assert PADDED in widths.found
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-2 if autocast else 1e-6)
