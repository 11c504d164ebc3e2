"""The counters of a run: counted right, written and read back, and the reasons to stop."""

import math

import pytest

from mt.config.training import TrainingConfig, ValidationConfig
from mt.training.counters import Counters


def test_the_loss_of_steps_is_summed_by_token() -> None:
    state = Counters()
    state.record_outcome(2.0, 10, updated=True)
    state.record_outcome(4.0, 30, updated=True)
    assert state.logged_tokens == 40
    assert state.logged_loss / state.logged_tokens == pytest.approx((2.0 * 10 + 4.0 * 30) / 40)


def test_of_the_curve_older_points_weigh_less() -> None:
    state = Counters()
    for loss in [1.0] * 30 + [2.0] * 11:
        state.record_outcome(loss, 10, updated=True)
        point = state.next_point()
    assert point is not None
    assert point.above_average == pytest.approx(0.9**10)


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("bleu", [0.0, 10.0, 10.0, 9.0, 11.0]),
        ("chrf", [5.0, 6.0, 6.0, 1.0, 7.0]),
        ("loss", [5.0, 4.0, 4.0, 4.5, 3.0]),
    ],
)
def test_best_value_and_patience(metric: str, values: list[float]) -> None:
    state = Counters()
    seen = [
        (state.record_validation(value, metric), state.best_value, state.num_validations_without_gain)
        for value in values
    ]
    first, second, _, _, last = values
    assert seen == [
        (True, first, 0),
        (True, second, 0),
        (False, second, 1),
        (False, second, 2),
        (True, last, 0),
    ]


def test_of_checkpoints_with_a_score_of_0_the_last_is_the_best() -> None:
    state = Counters()
    assert [state.record_validation(value, "bleu") for value in (0.0, 0.0, 0.0, 1.0, 0.0)] == [True] * 4 + [
        False
    ]
    assert state.num_validations_without_gain == 1


@pytest.mark.parametrize("metric", ["bleu", "loss"])
def test_value_that_is_not_finite_is_better_than_nothing_and_worse_than_any(metric: str) -> None:
    state = Counters()
    assert state.record_validation(math.nan, metric)
    assert state.record_validation(5.0, metric)
    assert not state.record_validation(math.nan, metric)
    assert state.best_value == 5.0
    assert state.num_validations_without_gain == 1


def test_patience_ends_a_run_whose_score_stays_0_and_its_newest_checkpoint_is_the_best() -> None:
    validation = ValidationConfig(patience=3)
    state = Counters()
    reasons = []
    for _ in range(4):
        assert state.record_validation(0.0, "bleu")
        reasons.append(state.reached_limit(TrainingConfig(), validation))
    assert reasons == [None, None, None, "no improvement in 3 validations (validation.patience)"]
