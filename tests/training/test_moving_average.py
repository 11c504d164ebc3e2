"""The moving average, against its formula computed weight by weight."""

import contextlib

import pytest
import torch

from mt.training.moving_average import MovingAverage
from tests.fixture_types import MakeObjective


@pytest.mark.parametrize("on_device", [False, True])
def test_it_is_the_formula(on_device: bool, make_objective: MakeObjective) -> None:
    model = make_objective().model
    average = MovingAverage(model, 0.3)
    expected = {name: weight.double() for name, weight in model.weights().items()}
    for number in range(1, 5):
        for weight in model.weights().values():
            weight.add_(torch.randn_like(weight))
        average.update(torch.tensor(0.0) if on_device else None)
        if on_device:  # A step that was skipped does not count.
            average.update(torch.tensor(1.0))
        decay = min(0.3, (1 + number) / (10 + number))
        expected = {
            name: decay * expected[name] + (1 - decay) * weight.double()
            for name, weight in model.weights().items()
        }
    assert (1 + 1) / (10 + 1) < 0.3 < (1 + 4) / (10 + 4)  # Both of the two decays were used.
    own = {name: weight.clone() for name, weight in model.weights().items()}
    with average.in_the_model():
        for name, weight in model.weights().items():
            torch.testing.assert_close(weight.double(), expected[name], rtol=1e-6, atol=1e-6)
    assert all(torch.equal(weight, own[name]) for name, weight in model.weights().items())


def test_the_model_gets_its_weights_back_after_an_error(make_objective: MakeObjective) -> None:
    model = make_objective().model
    average = MovingAverage(model, 0.5)
    model.weights()["tgt_embedding.tokens.weight"].zero_()
    with contextlib.suppress(KeyError), average.in_the_model():
        assert model.weights()["tgt_embedding.tokens.weight"].any()
        raise KeyError
    assert not model.weights()["tgt_embedding.tokens.weight"].any()
