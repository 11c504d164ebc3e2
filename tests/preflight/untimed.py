"""Fixtures for `mt init` that do not depend on the machine."""

import pytest

from mt.preflight import init
from mt.preflight.trial import Sample, Trial
from mt.training.budget import Pace


@pytest.fixture
def steps_of_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mt init` times nothing: no model is trained, and what it proposes does not depend on the machine."""

    def measure(sample: Sample, _: object = None) -> Pace:
        num_steps, tokens = sample.corpus_tokens / sample.config.training.batch_tokens, sample.corpus_tokens
        return Pace(num_steps, tokens, 0.1, 1.0, start_seconds=6.0, token_seconds=(1e-4, 3e-5))

    monkeypatch.setattr(init, "measure", measure)


@pytest.fixture
def steps_of_constant_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`mt init` builds models, but times none of their steps."""
    monkeypatch.setattr(Trial, "time_steps", lambda _: (1e-4, 3e-5))
