"""The two sides of a pair."""

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Sides(NamedTuple, Generic[T]):
    """Something of the source, and the same of the target."""

    src: T
    tgt: T


SIDES = Sides("src", "tgt")
