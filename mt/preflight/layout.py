"""The sections of the report of `mt check`, and numbers with their units."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CheckSection:
    """A section of the report."""

    title: str
    lines: list[str]
    warnings: list[str] = field(default_factory=list)
    verdict: str = ""
    """Of the last section: whether this run can begin, or go on."""


def count(number: float) -> str:
    """A whole number with commas."""
    return f"{round(number):,}"


def percent(share: float) -> str:
    """A share from 0 to 1, such as ``3.7 %``."""
    return f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """A time in a suitable unit."""
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"


def between(least: float, most: float) -> str:
    """A range of times; a single time if both ends look the same."""
    shortest, longest = duration(least), duration(most)
    if shortest == longest:
        return f"about {longest}"
    number, unit = shortest.split(" ")
    return f"{number if longest.endswith(unit) else shortest} to {longest}"
