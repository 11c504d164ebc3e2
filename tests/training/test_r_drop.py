"""R-Drop against its formula in torch, with gradients by autograd."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mt.special_tokens import PAD_ID
from mt.training.loss import r_drop_loss

N, D, V = 9, 5, 7
LABELS = torch.tensor([4, PAD_ID, 5, 6, 3, PAD_ID, 1, 4, 4])


def make_inputs(num_tokens: int = N, vocabulary_size: int = V) -> tuple[Tensor, Tensor]:
    """Hidden ``(2, N, D)`` of two passes and weight ``(V, D)``."""
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(2, num_tokens, D, generator=generator, dtype=torch.float64)
    weight = torch.randn(vocabulary_size, D, generator=generator, dtype=torch.float64)
    return hidden.requires_grad_(), weight.requires_grad_()


def by_formula(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, alpha: float) -> Tensor:
    """Half of the paper's equation 4, with torch's own losses."""
    real = labels != PAD_ID
    logits = (hidden @ weight.T)[:, real]
    p, q = logits.log_softmax(-1)
    cross_entropies = [
        F.cross_entropy(one, labels[real], label_smoothing=smoothing, reduction="sum") for one in logits
    ]
    divergence = F.kl_div(p, q, reduction="sum", log_target=True) + F.kl_div(
        q, p, reduction="sum", log_target=True
    )
    return (sum(cross_entropies, torch.zeros(())) + alpha / 2 * divergence) / 2


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_loss_and_gradients_are_those_of_the_formula(smoothing: float, alpha: float) -> None:
    inputs = make_inputs()
    loss = r_drop_loss(*inputs, LABELS, smoothing, alpha=alpha)
    expected = by_formula(*inputs, LABELS, smoothing, alpha)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs))


def test_gradients_by_finite_differences() -> None:
    assert torch.autograd.gradcheck(
        lambda hidden, weight: r_drop_loss(hidden, weight, LABELS, 0.1, alpha=3.0), make_inputs()
    )


def test_both_passes_of_a_token_fall_into_one_chunk() -> None:
    """6 million logits, of which 1,053 rows would fit into a chunk, and 263 into a block: odd numbers."""
    inputs = make_inputs(num_tokens=1501, vocabulary_size=1990)
    labels = torch.randint(0, 1990, (1501,), generator=torch.Generator().manual_seed(3))
    loss, expected = r_drop_loss(*inputs, labels, 0.1, alpha=5.0), by_formula(*inputs, labels, 0.1, 5.0)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs))


def test_equal_passes_leave_the_cross_entropy_of_one() -> None:
    hidden, weight = make_inputs()
    same = hidden[:1].expand(2, -1, -1)
    expected = by_formula(same, weight, LABELS, 0.1, 0.0)
    torch.testing.assert_close(r_drop_loss(same, weight, LABELS, 0.1, alpha=5.0), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_autocast_sums_in_float32(dtype: torch.dtype) -> None:
    hidden, weight = (x.detach().float().requires_grad_() for x in make_inputs())
    with torch.autocast("cpu", dtype=dtype):
        loss = r_drop_loss(hidden, weight, LABELS, 0.1, alpha=5.0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, by_formula(hidden, weight, LABELS, 0.1, 5.0), rtol=0.02, atol=0.02)
