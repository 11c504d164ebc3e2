"""The losses as formulas and as kernels, against torch's own losses: value and gradients."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from mt.special_tokens import EOS_ID, PAD_ID
from mt.training import loss as plain
from mt.transformer import kernels
from mt.transformer.kernels import cross_entropy as kernel

N, D, V = 9, 5, 7
LABELS = torch.tensor([4, PAD_ID, 5, 6, EOS_ID, PAD_ID, 1, 4, 4])
SMOOTHINGS = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.99])
MODULES = pytest.mark.parametrize("module", [plain, kernel], ids=["plain", "kernel"])
# What torch.compile is given on CUDA.
FUSED = partial(kernel.smoothed_cross_entropy, fused=kernel.fused_losses)


def make_inputs(
    *shape: int, num_words: int = V, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states of ``shape``, weight and bias."""
    generator = torch.Generator().manual_seed(2)
    shapes = (shape or (N, D), (num_words, shape[-1] if shape else D), (num_words,))
    hidden, weight, bias = (
        torch.randn(each, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for each in shapes
    )
    return hidden, weight, bias


def cross_entropy(
    hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor = LABELS, smoothing: float = 0.1
) -> Tensor:
    return F.cross_entropy(
        F.linear(hidden, weight, bias),
        labels,
        label_smoothing=smoothing,
        reduction="sum",
        ignore_index=PAD_ID,
    )


def r_drop(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor = LABELS,
    smoothing: float = 0.1,
    alpha: float = 5.0,
) -> Tensor:
    """Half of the paper's equation 4, with torch's own losses."""
    p, q = F.linear(hidden, weight, bias)[:, labels != PAD_ID].log_softmax(-1)
    divergence = F.kl_div(p, q, reduction="sum", log_target=True) + F.kl_div(
        q, p, reduction="sum", log_target=True
    )
    losses = [cross_entropy(each, weight, bias, labels, smoothing) for each in hidden]
    return (losses[0] + losses[1] + alpha / 2 * divergence) / 2


def of_kernel(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor = LABELS) -> Tensor:
    return kernel.smoothed_cross_entropy(hidden, weight, labels, 0.1, bias=bias)


def r_drop_of_kernel(hidden: Tensor, weight: Tensor, bias: Tensor, labels: Tensor = LABELS) -> Tensor:
    return kernel.r_drop_loss(hidden, weight, labels, 0.1, alpha=5.0, bias=bias)


def assert_same(
    loss: Tensor,
    expected: Tensor,
    inputs: Sequence[Tensor],
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """The same value and the same gradients."""
    torch.testing.assert_close(loss, expected, rtol=rtol, atol=atol)
    ours, theirs = torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs)
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol)


@pytest.mark.parametrize("compute", [plain.smoothed_cross_entropy, kernel.smoothed_cross_entropy, FUSED])
@SMOOTHINGS
def test_cross_entropy_is_that_of_torch(compute: Callable[..., Tensor], smoothing: float) -> None:
    hidden, weight, bias = inputs = make_inputs()
    loss = compute(hidden, weight, LABELS, smoothing, bias=bias)
    assert_same(loss, cross_entropy(*inputs, smoothing=smoothing), inputs)


def test_an_entry_that_is_compared_stands_for_those_that_are_not() -> None:
    hidden, weight, bias = make_inputs(num_words=12)
    totals = []
    # Each of the three begins elsewhere, because it has another sum.
    for times in (1, 2, 3):
        labels = torch.tensor([4] * times + [PAD_ID])
        some, some_bias, new_labels = kernels.sampled_softmax(weight, labels, 3, bias=bias)
        assert len(some) < len(weight)
        assert new_labels[-1] == PAD_ID
        torch.testing.assert_close(some[new_labels], weight[labels])
        totals.append(F.linear(hidden, some, some_bias).exp().sum(-1))
    expected = F.linear(hidden, weight, bias).exp().sum(-1)
    torch.testing.assert_close(torch.stack(totals).mean(0), expected)


@MODULES
@SMOOTHINGS
@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_r_drop_is_the_formula_of_the_paper(module: Any, smoothing: float, alpha: float) -> None:
    hidden, weight, bias = inputs = make_inputs(2, N, D)
    loss = module.r_drop_loss(hidden, weight, LABELS, smoothing, alpha=alpha, bias=bias)
    assert_same(loss, r_drop(*inputs, smoothing=smoothing, alpha=alpha), inputs)


def test_many_tokens_are_taken_in_several_chunks() -> None:
    """More logits than are computed at a time, the last chunk not full, and odd numbers of rows fit."""
    labels = torch.randint(0, 1990, (1501,), generator=torch.Generator().manual_seed(3))
    labels[::5] = PAD_ID
    inputs = make_inputs(1501, D, num_words=1990)
    assert_same(of_kernel(*inputs, labels), cross_entropy(*inputs, labels), inputs)
    inputs = make_inputs(2, 1501, D, num_words=1990)
    assert_same(r_drop_of_kernel(*inputs, labels), r_drop(*inputs, labels), inputs)


def test_a_batch_of_nothing_but_padding_counts_for_nothing() -> None:
    hidden, weight, bias = inputs = make_inputs()
    nothing = of_kernel(hidden, weight, bias, torch.full_like(LABELS, PAD_ID))
    assert nothing.item() == 0
    assert all(each.eq(0).all() for each in torch.autograd.grad(nothing, inputs))


def test_large_logits_give_no_overflow() -> None:
    hidden, weight, bias = make_inputs(dtype=torch.float32)
    inputs = [(each * 300).detach() for each in (hidden, weight, bias)]
    loss = of_kernel(inputs[0], inputs[1], inputs[2])
    assert loss.isfinite()
    torch.testing.assert_close(loss, cross_entropy(inputs[0], inputs[1], inputs[2]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    inputs = make_inputs(dtype=dtype)
    exact = [each.detach().float().requires_grad_() for each in inputs]
    loss, expected = of_kernel(*inputs), cross_entropy(exact[0], exact[1], exact[2])
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=0.01, atol=0.01)
    gradients = torch.autograd.grad(loss, inputs)
    for gradient, theirs in zip(gradients, torch.autograd.grad(expected, exact), strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.float(), theirs, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"), [(of_kernel, cross_entropy, (N, D)), (r_drop_of_kernel, r_drop, (2, N, D))]
)
def test_autocast_multiplies_in_halves_and_gives_float32_gradients(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], shape: tuple[int, ...]
) -> None:
    inputs = make_inputs(*shape, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ours(*inputs)
    assert loss.dtype == torch.float32
    assert not loss.equal(theirs(*inputs))
    assert_same(loss, theirs(*inputs), inputs, rtol=0.1, atol=0.2)


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


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize(
    ("loss", "shape"),
    [(kernel.smoothed_cross_entropy, (9, 16)), (partial(kernel.r_drop_loss, alpha=2.0), (2, 9, 16))],
    ids=["cross-entropy", "R-Drop"],
)
def test_outputs_added_for_a_gpu_change_no_loss_and_no_gradient(
    loss: Callable[..., Tensor], shape: tuple[int, ...], autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # oneDNN's products are not among those that are looked at, and no GPU has it.
    monkeypatch.setattr(
        "mt.transformer.kernels.linear.onednn_is_faster", lambda dtype: dtype == torch.bfloat16
    )
    results = []
    for width in (21, 24):
        if width == 24:
            monkeypatch.setitem(kernel.OUTPUT_MULTIPLE, "cpu", 8)
        hidden, weight, _ = make_inputs(*shape, num_words=21, dtype=torch.float32)
        with Widths() as widths, torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
            value = loss(hidden, weight, LABELS, 0.1)
        assert widths.found & {21, 24} == {width}
        results.append((value.detach(), *torch.autograd.grad(value, (hidden, weight))))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-2 if autocast else 1e-6)
