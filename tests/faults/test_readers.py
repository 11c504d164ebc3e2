"""Who translates or evaluates while training prunes has the answer of one checkpoint, and never an error."""

import pytest

from .torture.processes import Driver
from .torture.readers import READS, read_beside_writer
from .torture.trial import Arena


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind == "evaluate" else []) for kind in READS]
)
def test_every_answer_beside_a_pruning_writer_is_right(arena: Arena, driver: Driver, kind: str) -> None:
    assert read_beside_writer(kind, "best", 10)(arena, driver).problems == []
