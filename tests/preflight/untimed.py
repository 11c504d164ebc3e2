"""Fixtures for `mt init` that do not depend on the machine."""

import pytest

from mt.preflight import init
from mt.preflight.forecast import Pace
from mt.preflight.trial import Sample, Speed, Trial


@pytest.fixture
def steps_of_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mt init` times nothing: no model is trained, and what it proposes does not depend on the machine."""

    def measure(sample: Sample, speed: Speed | None = None) -> tuple[Speed, Pace]:
        num_steps = sample.corpus_tokens / sample.config.training.batch_tokens
        pace = Pace(num_steps, sample.corpus_tokens, 0.1, validation_seconds=1.0, start_seconds=6.0)
        return Speed(1e-4, 3e-5), pace

    monkeypatch.setattr(init, "measure", measure)


@pytest.fixture
def steps_of_constant_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mt init` builds models, but times none of their steps."""
    monkeypatch.setattr(Trial, "time_steps", lambda _: Speed(1e-4, 3e-5))
