"""No room left: said in a sentence; what was there can be read, and the run continues once there is room."""

import pytest

from .torture.disk import CALLS, full_disk
from .torture.processes import Driver
from .torture.trial import Arena

CASES: dict[str, dict[str, str | int]] = {
    "tokenizer": {"point": "before fsync .src_tokenizer.json.partial", "happens": "full"},
    "second checkpoint": {
        "point": "before fsync checkpoints/.step.partial/training_state.safetensors",
        "occurrence": 2,
        "happens": "full",
    },
    "pointer": {"point": "before fsync checkpoints/.latest.partial", "occurrence": 2, "happens": "full"},
    "within a checkpoint": {"room": 300_000},
}


@pytest.mark.parametrize("fate", CASES.values(), ids=CASES)
def test_full(arena: Arena, driver: Driver, fate: dict[str, str | int]) -> None:
    assert full_disk(CALLS, "", **fate)(arena, driver).problems == []
