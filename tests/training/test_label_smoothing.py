"""The loss against a distribution written out, and against ``F.cross_entropy``: value and gradients."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mt.special_tokens import EOS_ID, PAD_ID
from mt.training.loss import smoothed_cross_entropy

N, D, V = 9, 5, 7
LABELS = torch.tensor([4, PAD_ID, 5, 6, EOS_ID, PAD_ID, 1, 4, 4])
SMOOTHINGS = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5, 0.99])


def make_inputs(
    num_tokens: int = N, vocabulary_size: int = V, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Hidden ``(N, D)`` and weight ``(V, D)``."""
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(num_tokens, D, generator=generator, dtype=torch.float64).to(dtype)
    weight = torch.randn(vocabulary_size, D, generator=generator, dtype=torch.float64).to(dtype)
    return hidden.requires_grad_(), weight.requires_grad_()


def loss_of_torch(hidden: Tensor, weight: Tensor, labels: Tensor = LABELS, smoothing: float = 0.1) -> Tensor:
    return F.cross_entropy(
        hidden @ weight.T, labels, label_smoothing=smoothing, reduction="sum", ignore_index=PAD_ID
    )


def ours(hidden: Tensor, weight: Tensor, labels: Tensor = LABELS, smoothing: float = 0.1) -> Tensor:
    return smoothed_cross_entropy(hidden, weight, labels, smoothing)


def assert_same_value_and_gradients(loss: Tensor, expected: Tensor, inputs: tuple[Tensor, Tensor]) -> None:
    torch.testing.assert_close(loss, expected)
    gradients, expected_gradients = torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs)
    torch.testing.assert_close(gradients, expected_gradients, atol=2e-5, rtol=1e-4)


@SMOOTHINGS
def test_loss_is_the_cross_entropy_with_a_distribution_written_out(smoothing: float) -> None:
    target = torch.zeros(N, V)
    for row, label in enumerate(LABELS.tolist()):
        for token in range(V):
            right = 1 - smoothing if token == label else 0.0
            target[row, token] = 0.0 if label == PAD_ID else smoothing / V + right
    assert target.sum(-1).tolist() == pytest.approx([float(label != PAD_ID) for label in LABELS.tolist()])
    hidden, weight = make_inputs()
    expected = -(target * (hidden @ weight.T).softmax(-1).log()).sum()
    assert_same_value_and_gradients(ours(hidden, weight, smoothing=smoothing), expected, (hidden, weight))


@SMOOTHINGS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_equals_that_of_torch(dtype: torch.dtype, smoothing: float) -> None:
    inputs = make_inputs(dtype=dtype)
    expected = loss_of_torch(*inputs, smoothing=smoothing)
    loss = ours(*inputs, smoothing=smoothing)
    assert loss.dtype == dtype
    assert_same_value_and_gradients(loss, expected, inputs)


def test_gradients_by_finite_differences() -> None:
    assert torch.autograd.gradcheck(ours, make_inputs(dtype=torch.float64))


def test_many_tokens_are_taken_in_several_chunks() -> None:
    """3 million logits, more than are made at a time, and the last chunk not full."""
    inputs = make_inputs(num_tokens=1501, vocabulary_size=2000, dtype=torch.float64)
    labels = torch.randint(0, 2000, (1501,), generator=torch.Generator().manual_seed(3))
    labels[::5] = PAD_ID
    assert_same_value_and_gradients(ours(*inputs, labels), loss_of_torch(*inputs, labels), inputs)


def test_gradient_reaches_a_weight_that_is_used_twice() -> None:
    """As that of a tied output projection is, which is the embedding too."""
    _, weight = make_inputs()
    hidden = weight[LABELS] * 2
    expected = torch.autograd.grad(loss_of_torch(hidden, weight), weight)
    torch.testing.assert_close(torch.autograd.grad(ours(weight[LABELS] * 2, weight), weight), expected)


def test_padding_counts_for_nothing() -> None:
    hidden, weight = make_inputs()
    real = LABELS != PAD_ID
    torch.testing.assert_close(ours(hidden, weight), ours(hidden[real], weight, LABELS[real]))
    (gradient,) = torch.autograd.grad(ours(hidden, weight), hidden)
    assert gradient[~real].eq(0).all()
    assert (gradient[real] != 0).any(-1).all()
    nothing = ours(hidden, weight, torch.full_like(LABELS, PAD_ID))
    assert nothing.item() == 0
    assert all(g.eq(0).all() for g in torch.autograd.grad(nothing, (hidden, weight)))


def test_large_logits_give_no_overflow() -> None:
    hidden, weight = make_inputs()
    inputs = ((hidden * 1e3).detach().requires_grad_(), (weight * 1e2).detach().requires_grad_())
    loss, expected = ours(*inputs), loss_of_torch(*inputs)
    assert loss.isfinite()
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    inputs = make_inputs(dtype=dtype)
    hidden, weight = (x.detach().float().requires_grad_() for x in inputs)
    loss, expected = ours(*inputs), loss_of_torch(hidden, weight)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=0.01, atol=0.01)
    gradients = torch.autograd.grad(loss, inputs)
    for gradient, theirs in zip(gradients, torch.autograd.grad(expected, (hidden, weight)), strict=True):
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient.float(), theirs, atol=0.05, rtol=0.05)


def test_autocast_multiplies_in_halves_and_gives_float32_gradients() -> None:
    inputs = make_inputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ours(*inputs)
    assert loss.dtype == torch.float32
    expected = loss_of_torch(*inputs)
    torch.testing.assert_close(loss, expected, rtol=0.01, atol=0.01)
    gradients = torch.autograd.grad(loss, inputs)
    for gradient, theirs in zip(gradients, torch.autograd.grad(expected, inputs), strict=True):
        assert gradient.dtype == torch.float32
        assert not gradient.equal(theirs)
        torch.testing.assert_close(gradient, theirs, atol=0.05, rtol=0.05)
