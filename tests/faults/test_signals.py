"""Asked to stop in each phase of a run: the right exit code, nothing lost, the end of the unbroken run."""

import pytest

from .torture.processes import Driver
from .torture.signals import send_signal
from .torture.trial import Arena

SAVING = "before fsync checkpoints/.step.partial/model.safetensors"
CASES = {
    "loading": ("begin loading", 1, "SIGTERM"),
    "training": ("begin step", 7, "SIGUSR1"),
    "training, and the terminal is closed": ("begin step", 5, "SIGHUP"),
    "validating": ("begin translating", 1, "SIGTERM"),
    "saving": (SAVING, 2, "SIGINT"),
    "saving, and again": (SAVING, 3, "SIGINT SIGINT"),
}


SLOW = {"training", "validating"}
"""The same ways out as another case, at another moment."""


@pytest.mark.parametrize(
    ("point", "occurrence", "names"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, case in CASES.items()
    ],
)
def test_asked_to_stop(arena: Arena, driver: Driver, point: str, occurrence: int, names: str) -> None:
    assert send_signal(point, occurrence, names)(arena, driver).problems == []
