"""A clock that goes backwards decides nothing."""

from .torture.clock import newest_of_two, resumed_later, whole_run
from .torture.processes import Driver
from .torture.trial import Arena


def test_throughout_a_run(arena: Arena, driver: Driver) -> None:
    assert whole_run(arena, driver).problems == []


def test_resumed_before_it_was_started(arena: Arena, driver: Driver) -> None:
    assert resumed_later(8, mixed_up=True)(arena, driver).problems == []


def test_the_newest_run(arena: Arena, driver: Driver) -> None:
    assert newest_of_two(arena, driver).problems == []
