"""Dropout by its statistics: shares within five standard deviations, exact scales, correct gradients."""

import math

import pytest
import torch

from mt.transformer.kernels.dropout import Dropout

N = 2**18


def dropped_ones(p: float, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    dropped: torch.Tensor = Dropout(p)(torch.ones(shape, dtype=dtype))
    return dropped


@pytest.fixture(autouse=True)
def _reseed() -> None:
    torch.manual_seed(20)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.25, 0.3, 0.5, 0.9])
def test_share_of_zeros_is_p_and_the_mean_stays(p: float) -> None:
    y = dropped_ones(p, N)
    deviation = math.sqrt(p * (1 - p) / N)
    assert abs(float((y == 0).float().mean()) - p) < 5 * deviation
    assert abs(float(y.mean()) - 1) < 5 * deviation / (1 - p)


def test_a_share_of_almost_one_divides_by_no_zero() -> None:
    assert dropped_ones(0.999999, N).isfinite().all()


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_every_position_within_a_draw_has_the_same_share(p: float) -> None:
    shares = (dropped_ones(p, N) == 0).float().view(-1, 16).mean(0)
    assert (shares - p).abs().max() < 5 * math.sqrt(p * (1 - p) / (N / 16))


def test_neighbours_are_independent() -> None:
    kept = (dropped_ones(0.5, N) != 0).float() * 2 - 1
    for lag in (1, 2, 3, 4, 5, 8, 16, 64, 1024):
        assert abs(float((kept[:-lag] * kept[lag:]).mean())) < 5 / math.sqrt(N)


def test_the_seed_determines_the_zeros_and_each_call_draws_new_ones() -> None:
    torch.manual_seed(3)
    first, second = dropped_ones(0.5, 100), dropped_ones(0.5, 100)
    assert not first.equal(second)
    torch.manual_seed(3)
    assert dropped_ones(0.5, 100).equal(first)
    state = torch.get_rng_state()
    third = dropped_ones(0.5, 100)
    torch.set_rng_state(state)
    assert dropped_ones(0.5, 100).equal(third)
    assert not third.equal(first)


@pytest.mark.parametrize("training", [True, False])
def test_without_dropping_no_random_number_is_drawn(training: bool) -> None:
    x = torch.randn(5, 7)
    state = torch.get_rng_state()
    assert Dropout(0.0 if training else 0.5).train(training)(x).equal(x)
    assert torch.get_rng_state().equal(state)


def test_in_mixed_precision_only_that_of_a_residual_is_float32() -> None:
    x = torch.ones(3, dtype=torch.bfloat16)
    for autocast, of_residual, dtype in (
        (True, True, torch.float32),
        (True, False, torch.bfloat16),
        (False, True, torch.bfloat16),
    ):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            assert Dropout(0.5, of_residual=of_residual)(x).dtype == dtype
            assert Dropout(0.5, of_residual=of_residual).eval()(x).dtype == dtype


def test_gradient_flows_through_kept_elements_only() -> None:
    x = torch.randn(9, 11, requires_grad=True)
    y = Dropout(0.25)(x)
    direction = torch.randn(9, 11)
    (gradient,) = torch.autograd.grad(y, x, direction)
    scales = torch.where(y == 0, 0.0, torch.tensor(1 / 0.75))
    torch.testing.assert_close(gradient, direction * scales, rtol=0, atol=0)
    torch.testing.assert_close(y, x * scales, rtol=0, atol=0)
