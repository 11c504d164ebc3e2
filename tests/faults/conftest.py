"""A small arena, and what runs in it what the tests order; see `torture/driver.py`."""

import pytest

from .torture.processes import Driver
from .torture.trial import Arena, make_arena


@pytest.fixture(scope="session")
def driver() -> Driver:
    return Driver()


@pytest.fixture(scope="session")
def arena(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """Twelve steps, two validations, a checkpoint each third step, and a rotation at the last."""
    return make_arena(tmp_path_factory.mktemp("arena") / "arena", driver, steps=12)
