"""Plain aligned text: tables, and numbers with their units."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Part:
    """A section of the report."""

    title: str
    lines: list[str]
    warnings: list[str] = field(default_factory=list)


def table(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """Rows as lines, the columns aligned: the first to the left, the others to the left or the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def aligned(cell: str, column: int) -> str:
        return cell.rjust(widths[column]) if right and column else cell.ljust(widths[column])

    return ["  ".join(aligned(cell, column) for column, cell in enumerate(row)).rstrip() for row in rows]


def count(number: float) -> str:
    """A whole number with commas."""
    return f"{round(number):,}"


def percent(share: float) -> str:
    """A share from 0 to 1, such as ``3.7 %``."""
    return f"{100 * share:.1f} %"


def size(num_bytes: float) -> str:
    """Bytes in MB, or in GB from 1,000 MB."""
    megabytes = num_bytes / 1e6
    return f"{megabytes:.1f} MB" if megabytes < 999.95 else f"{megabytes / 1000:,.1f} GB"


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
