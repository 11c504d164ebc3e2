"""Damaged checkpoints of a real run: never loaded, named, and the newest sound one continued from."""

import pytest

from .torture.damage import DAMAGES, PARTS, offer_damaged, resume_damaged
from .torture.processes import Driver
from .torture.trial import Arena


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("part", PARTS)
def test_no_damaged_checkpoint_is_loaded(arena: Arena, driver: Driver, part: str, kind: str) -> None:
    assert offer_damaged(part, kind, 15, 0.5)(arena, driver).problems == []


@pytest.mark.parametrize("part", ["model.safetensors"])
def test_training_continues_from_the_newest_sound_one(arena: Arena, driver: Driver, part: str) -> None:
    assert resume_damaged(part, "one bit flipped", 0.5)(arena, driver).problems == []
