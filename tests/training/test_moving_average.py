"""The moving average, against its formula computed weight by weight."""

import contextlib
import math
from collections.abc import Callable, Sequence

import torch

from mt.data.batches.batch import Batch
from mt.device import Precision
from mt.training.loss import Objective
from mt.training.train_state import MovingAverage, TrainState
from tests.training.spoilt import Spoilt


def test_it_is_the_formula(make_objective: Callable[..., Objective]) -> None:
    model = make_objective().model
    average = MovingAverage(model, 0.3)
    expected = {name: weight.double() for name, weight in model.weights().items()}
    for number in range(1, 5):
        for weight in model.weights().values():
            weight.add_(torch.randn_like(weight))
        average.update()
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


def test_the_model_gets_its_weights_back_after_an_error(make_objective: Callable[..., Objective]) -> None:
    model = make_objective().model
    average = MovingAverage(model, 0.5)
    model.weights()["tgt_embedding.tokens.weight"].zero_()
    with contextlib.suppress(KeyError), average.in_the_model():
        assert model.weights()["tgt_embedding.tokens.weight"].any()
        raise KeyError
    assert not model.weights()["tgt_embedding.tokens.weight"].any()


def test_equal_weights_have_themselves_for_an_average(make_objective: Callable[..., Objective]) -> None:
    model = make_objective().model
    average = MovingAverage(model, 0.9)
    own = {name: weight.clone() for name, weight in model.weights().items()}
    for _ in range(20):
        average.update()
    with average.in_the_model():
        assert all(torch.equal(weight, own[name]) for name, weight in model.weights().items())


def test_a_skipped_step_leaves_it_as_it_was(
    make_objective: Callable[..., Objective], make_batches: Callable[[Sequence[int]], list[Batch]]
) -> None:
    objective = Spoilt(make_objective().model)
    average = MovingAverage(objective.model, 0.9)
    state = TrainState(
        objective,
        torch.optim.SGD(objective.parameters()),
        Precision("float32", torch.device("cpu")),
        lambda _: 0.1,
        average=average,
    )
    assert state.step(make_batches([11])).updated
    own = objective.model.weights()["tgt_embedding.tokens.weight"].clone()
    with average.in_the_model():
        before = {name: weight.clone() for name, weight in objective.model.weights().items()}
    # So that one more update would change it.
    assert not torch.equal(before["tgt_embedding.tokens.weight"], own)
    objective.added = math.nan
    assert not state.step(make_batches([11])).updated
    assert average.num_updates == 1
    with average.in_the_model():
        for name, weight in objective.model.weights().items():
            assert torch.equal(weight, before[name])


def test_saved_and_loaded_it_continues(make_objective: Callable[..., Objective]) -> None:
    model, other = make_objective().model, make_objective().model
    average, resumed = MovingAverage(model, 0.9), MovingAverage(other, 0.9)
    for number in range(3):
        model.weights()["tgt_embedding.tokens.weight"].fill_(number)
        average.update()
    trained = average.trained_weights()
    with average.in_the_model():
        averaged = {name: weight.clone() for name, weight in model.weights().items()}
    resumed.restore(int(average.num_updates), averaged, trained)
    for each in (model, other):
        each.weights()["tgt_embedding.tokens.weight"].fill_(7)
    average.update()
    resumed.update()
    with average.in_the_model(), resumed.in_the_model():
        for name, weight in model.weights().items():
            assert torch.equal(weight, other.weights()[name])
