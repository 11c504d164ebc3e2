"""The learning rate by the paper's formula, and by what each kind promises."""

import math
from typing import Any

import pytest

from mt.config.training import ScheduleConfig
from mt.training.schedule import has_ended, learning_rate, noam_learning_rate

KINDS = pytest.mark.parametrize("kind", ["noam", "inverse_sqrt", "cosine", "constant"])


def rate(step: int, kind: str, d_model: int = 64, **settings: Any) -> float:
    if kind == "cosine":
        settings.setdefault("total_steps", 1000)
    defaults: dict[str, Any] = {"learning_rate": 0.002, "warmup_steps": 100}
    return learning_rate(step, ScheduleConfig(**(defaults | {"kind": kind} | settings)), d_model=d_model)


@pytest.mark.parametrize(
    ("d_model", "warmup_steps", "factor"), [(512, 4000, 1.0), (64, 10, 0.5), (256, 1, 2.0)]
)
def test_noam_by_equation_3_of_the_paper(d_model: int, warmup_steps: int, factor: float) -> None:
    for step in (1, 2, max(1, warmup_steps - 1), warmup_steps, warmup_steps + 1, 100_000):
        expected = factor / math.sqrt(d_model) * min(1 / math.sqrt(step), step / math.sqrt(warmup_steps) ** 3)
        ours = noam_learning_rate(step, d_model=d_model, warmup_steps=warmup_steps, factor=factor)
        assert ours == pytest.approx(expected, rel=1e-12)
        through_config = rate(step, "noam", d_model=d_model, warmup_steps=warmup_steps, factor=factor)
        assert through_config == ours


@KINDS
def test_the_warm_up_is_linear_and_its_end_is_the_peak(kind: str) -> None:
    rates = {step: rate(step, kind) for step in range(1, 1001)}
    peak = rates[100]
    assert [rates[step] for step in range(1, 100)] == pytest.approx([peak * n / 100 for n in range(1, 100)])
    assert all(rates[step] >= rates[step + 1] for step in range(100, 1000))
    assert kind == "noam" or peak == pytest.approx(0.002, rel=1e-12)


def test_inverse_square_root_is_exact() -> None:
    assert rate(400, "inverse_sqrt") == pytest.approx(0.001, rel=1e-12)
    assert rate(10_000, "inverse_sqrt") == pytest.approx(0.0002, rel=1e-12)


def test_cosine_falls_to_zero_at_its_own_total_and_stays() -> None:
    for step in (100, 325, 550, 775, 1000):
        expected = 0.001 * (1 + math.cos(math.pi * (step - 100) / 900))
        assert rate(step, "cosine") == pytest.approx(expected, abs=1e-15)
    assert rate(550, "cosine") == pytest.approx(0.001)
    assert rate(1000, "cosine") == pytest.approx(0, abs=1e-15)
    assert rate(5000, "cosine") == pytest.approx(0, abs=1e-15)


def test_only_a_cosine_ends_and_at_its_total() -> None:
    cosine = ScheduleConfig(kind="cosine", warmup_steps=10, total_steps=1000)
    assert [has_ended(step, cosine) for step in (999, 1000, 1001)] == [False, True, True]
    assert not has_ended(1000, ScheduleConfig(kind="constant", total_steps=1000))


def test_constant_stays() -> None:
    assert {rate(step, "constant") for step in (100, 101, 10_000)} == {0.002}


@pytest.mark.parametrize("kind", ["inverse_sqrt", "cosine", "constant"])
def test_without_warm_up_the_peak_comes_first(kind: str) -> None:
    assert rate(1, kind, warmup_steps=0) == pytest.approx(0.002, rel=1e-4)
    assert rate(2, kind, warmup_steps=0) <= 0.002


@KINDS
@pytest.mark.parametrize("step", [0, -1])
def test_steps_are_counted_from_one(step: int, kind: str) -> None:
    with pytest.raises(ValueError, match=f"no step {step}$"):
        rate(step, kind)
