"""Progress bars on stderr, which only a program that owns the terminal turns on.

A library must not draw on the terminal of whoever imports it. So `track` returns its items unchanged until
the command line has called `show_progress_bars`, and draws nothing where stderr is not a terminal.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

# State of the process, as the handlers of `logging` are: a thread would not inherit a ContextVar.
_are_shown = False


def show_progress_bars() -> None:
    """Draw bars from now on."""
    global _are_shown
    _are_shown = True


def are_shown() -> bool:
    """Whether `show_progress_bars` was called."""
    return _are_shown


def track(
    items: Iterable[T],
    description: str,
    *,
    unit: str,
    total: int | None = None,
    size: Callable[[T], int] | None = None,
    delay_seconds: float = 0,
) -> Iterable[T]:
    """The items, with a bar that moves as they are consumed, if bars are shown.

    Args:
        items: What is gone through.
        description: What is being done, such as "encoding".
        unit: What is counted, in the plural.
        total: How many units there are; by default the number of items, where it is known.
        size: How many units an item counts; one by default.
        delay_seconds: The bar appears after so long.
    """
    if not _are_shown:
        return items
    bar = tqdm(
        items if size is None else (),
        total=total,
        desc=description,
        unit=f" {unit}",
        delay=delay_seconds,
        disable=None,
        leave=False,
    )
    return bar if size is None else _advance(bar, items, size)


def _advance(bar: "tqdm[T]", items: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
    with bar:
        for item in items:
            yield item
            bar.update(size(item))
