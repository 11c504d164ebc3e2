"""How long `mt check` thinks a run will be, against arithmetic, a simulation of the loop, and a real run."""

from collections.abc import Callable

import pytest

from mt.config.config import Config
from mt.preflight.forecast import Pace, forecast, warn_of_schedule

MakeConfig = Callable[..., Config]
# An epoch of 50 steps of 100 tokens: at 200 tokens a second half a second a step.
PACE = Pace(
    steps_per_epoch=50,
    target_tokens_per_epoch=5000,
    tokens_per_second=200,
    epoch_seconds=0,
    validation_seconds=3,
)


def test_a_run_by_arithmetic(make_config: MakeConfig) -> None:
    config = make_config("training.max_steps=120", "validation.every_steps=50", "checkpoint.every_steps=40")
    run = forecast(config, PACE)
    assert (run.num_steps, run.ended_by, run.num_epochs) == (120, "training.max_steps", 2.4)
    # Validated at 50, 100 and 120; saved at 40, 80 and 120.
    assert (run.num_validations, run.num_checkpoints) == (3, 3)
    assert (run.training_seconds, run.validating_seconds, run.seconds) == (60, 9, 69)


@pytest.mark.parametrize(
    ("overrides", "num_steps", "ended_by"),
    [
        (["training.max_steps=null", "training.max_epochs=3"], 150, "training.max_epochs"),
        (["training.max_steps=140", "training.max_epochs=3"], 140, "training.max_steps"),
        # 9,950 tokens are 99.5 steps.
        (["training.max_steps=null", "training.max_target_tokens=9950"], 100, "training.max_target_tokens"),
        (["training.max_steps=1000", "training.max_target_tokens=200"], 2, "training.max_target_tokens"),
    ],
)
def test_the_limit_that_is_met_first(
    make_config: MakeConfig, overrides: list[str], num_steps: int, ended_by: str
) -> None:
    run = forecast(make_config(*overrides), PACE)
    assert (run.num_steps, run.ended_by, run.is_certain) == (num_steps, ended_by, True)


@pytest.mark.parametrize(
    ("limit", "slack"), [("max_steps=100", 1), ("max_minutes=1", 2), ("max_epochs=1", 1.05)]
)
def test_minutes_say_least_about_the_number_of_steps(
    make_config: MakeConfig, limit: str, slack: float
) -> None:
    assert forecast(make_config("training.max_steps=null", f"training.{limit}"), PACE).slack == slack


def test_patience_alone_tells_the_earliest_end(make_config: MakeConfig) -> None:
    config = make_config("training.max_steps=null", "validation.patience=3", "validation.every_steps=10")
    run = forecast(config, PACE)
    # The first validation is a gain, the three after it may be none.
    assert (run.num_steps, run.ended_by, run.is_certain) == (40, "validation.patience", False)


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        (
            ["schedule.kind=cosine", "schedule.total_steps=39"],
            "(39), but the run continues to at least step 40",
        ),
        # It may last longer, until a longer warm-up is over and a longer cosine has reached zero.
        (["schedule.kind=cosine", "schedule.total_steps=40"], None),
        (["schedule.kind=cosine", "schedule.total_steps=400"], None),
        (["schedule.warmup_steps=41"], None),
    ],
)
def test_an_earliest_end_can_only_be_too_late_for_the_schedule(
    make_config: MakeConfig, options: list[str], warning: str | None
) -> None:
    patience = ("training.max_steps=null", "validation.patience=3", "validation.every_steps=10")
    config = make_config(*patience, *options)
    found = list(warn_of_schedule(config, forecast(config, PACE)))
    assert len(found) == (warning is not None)
    assert all(warning in each for each in found if warning)


def test_minutes_against_the_loop_counted_out(make_config: MakeConfig) -> None:
    config = make_config("training.max_steps=null", "training.max_minutes=2", "validation.every_steps=20")
    seconds, steps = 0.0, 0
    while seconds < 120:
        steps += 1
        seconds += 0.5 + 3 * (steps % 20 == 0)
    assert forecast(config, PACE).num_steps == pytest.approx(steps, abs=6)


def test_at_half_the_speed_everything_takes_twice_as_long(make_config: MakeConfig) -> None:
    config = make_config("training.max_steps=120", "validation.every_steps=50")
    slow = forecast(config, PACE.at(100))
    assert (slow.training_seconds, slow.validating_seconds) == (120, 18)


@pytest.mark.parametrize("every", [1, 7, 40, 200, 1000])
def test_how_often_against_counting(make_config: MakeConfig, every: int) -> None:
    run = forecast(make_config("training.max_steps=120", f"validation.every_steps={every}"), PACE)
    assert run.num_validations == len([s for s in range(1, 121) if s % every == 0 or s == 120])
