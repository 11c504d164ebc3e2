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


def test_of_the_curve_older_points_weigh_less_and_the_first_ones_are_no_spikes() -> None:
    state = Counters()
    above = []
    for loss in [1.0] * 9 + [2.0] * 2 + [1.0] * 150 + [2.0] * 11:
        state.record_outcome(loss, 10, updated=True)
        point = state.next_point()
        assert point is not None
        assert (point.loss, state.logged_tokens) == (loss, 0)
        above.append(point.above_average)
    assert above[:10] == [0.0] * 10
    # After nine points of 1 and one of 2.
    assert above[10] == pytest.approx(0.9)
    assert above[-1] == pytest.approx(0.9**10)


def test_a_point_whose_steps_were_all_skipped_is_none() -> None:
    state = Counters()
    state.record_outcome(9.0, 10, updated=False)
    assert (state.next_point(), state.num_points) == (None, 0)


@pytest.mark.parametrize(
    ("epoch", "batch", "every", "expected"),
    [(4, 0, 2, True), (3, 0, 2, False), (4, 1, 2, False), (3, 0, 1, True), (3, 0, None, False)],
)
def test_an_epoch_ends_with_its_last_batch(epoch: int, batch: int, every: int | None, expected: bool) -> None:
    assert Counters(epoch=epoch, batch=batch).ends_epoch(every) == expected


@pytest.mark.parametrize(
    ("counters", "reason"),
    [
        (Counters(step=11_999, epoch=2, seconds=89.9), None),
        (Counters(step=12_000), "training.max_steps (12,000) reached"),
        (Counters(epoch=3), "training.max_epochs (3) reached"),
        (Counters(seconds=90.0), "training.max_minutes (1.5) reached"),
        (Counters(num_validations_without_gain=2), None),
        (Counters(num_validations_without_gain=3), "no improvement in 3 validations (validation.patience)"),
    ],
)
def test_each_limit_is_reached_when_its_number_is(counters: Counters, reason: str | None) -> None:
    training = TrainingConfig(max_steps=12_000, max_epochs=3, max_minutes=1.5)
    assert counters.reached_limit(training, ValidationConfig(patience=3)) == reason
    assert Counters(num_validations_without_gain=9).reached_limit(training, ValidationConfig()) is None


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


@pytest.mark.parametrize(
    ("metric", "best"),
    [("bleu", [True, True, True, True, False]), ("loss", [True, False, False, False, False])],
)
def test_of_checkpoints_with_a_score_of_0_the_last_is_the_best(metric: str, best: list[bool]) -> None:
    state = Counters()
    assert [state.record_validation(value, metric) for value in (0.0, 0.0, 0.0, 1.0, 0.0)] == best
    assert state.num_validations_without_gain == (1 if metric == "bleu" else 4)


@pytest.mark.parametrize("metric", ["bleu", "loss"])
def test_value_that_is_not_finite_is_better_than_nothing_and_worse_than_any(metric: str) -> None:
    state = Counters()
    assert state.record_validation(math.nan, metric)
    assert not state.record_validation(math.nan, metric)
    assert state.record_validation(5.0, metric)
    assert not state.record_validation(math.nan, metric)
    assert state.best_value == 5.0
    assert state.num_validations_without_gain == 1
