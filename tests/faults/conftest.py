"""A small arena, and a process that runs in it what the tests order; see `torture/driver.py`."""

from collections.abc import Iterator

import pytest

from .torture.processes import Driver
from .torture.trial import Arena, make_arena


@pytest.fixture(scope="session")
def driver() -> Iterator[Driver]:
    with Driver() as driver:
        yield driver


@pytest.fixture(scope="session")
def arena(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """Twelve steps, two validations, a checkpoint each third step, and a rotation at the last."""
    return make_arena(tmp_path_factory.mktemp("arena") / "arena", driver, steps=12)
