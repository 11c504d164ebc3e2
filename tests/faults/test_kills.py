"""Killed in each phase of a run and of a save: the same command ends as if nothing had happened."""

import pytest

from .torture.kills import named_kill
from .torture.processes import Driver
from .torture.trial import Arena

POINTS = {
    "loading": ("begin loading", 1, "kill"),
    "validation": ("begin translating", 2, "kill"),
    "before anything is written": ("before mkdir checkpoints/.step.partial", 3, "kill"),
    "half of a part": ("before fsync checkpoints/.step.partial/training_state.safetensors", 2, "half"),
    "between two parts": ("after fsync checkpoints/.step.partial/model.safetensors", 2, "kill"),
    "before the rename": ("before rename checkpoints/.step.partial -> checkpoints/step", 1, "kill"),
    "after the pointer": ("after replace checkpoints/.best.partial -> checkpoints/best", 1, "kill"),
    "rotation": ("before unlink checkpoints/.step.partial/model.safetensors", 1, "kill"),
}


# The store's own tests are killed at every point of a save; these see the whole command once more.
SLOW = {"before anything is written", "between two parts", "before the rename", "after the pointer"}
CASES = [
    pytest.param(*case, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
    for name, case in POINTS.items()
]


@pytest.mark.parametrize(("point", "occurrence", "happens"), CASES)
def test_killed(arena: Arena, driver: Driver, point: str, occurrence: int, happens: str) -> None:
    assert named_kill(point, occurrence, happens)(arena, driver).problems == []
