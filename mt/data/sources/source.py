"""What every kind of corpus is turned into before it is checked: numbered pairs, by split."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, get_args

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

# What files and Hub splits are called, the usual name first.
SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}

# The number of the line or row, counted from 1, the source and the target. Nothing is known of the last two
# yet: a hole in a corpus is None, and a JSON file may hold a number where text should stand.
NumberedPair = tuple[int, object, object]


@dataclass(frozen=True)
class Part:
    """One file, or one split of a Hub corpus.

    Attributes:
        where: What a message calls it, such as ``data/train.jsonl``.
        unit: What the numbers of its pairs count.
        pairs: The pairs, to be gone through once; that raises `DataError` where the file is broken.
        identify: Gives a text that is another one whenever the pairs are, unless the config or the program
            differ, without going through them; None where nothing tells. It may raise OSError.
    """

    where: str
    unit: Literal["line", "row"]
    pairs: Iterable[NumberedPair]
    identify: Callable[[], str | None] = lambda: None


@dataclass(frozen=True)
class Source:
    """A corpus that was found, with nothing read of it yet.

    Attributes:
        kind: ``built-in``, ``hub``, ``folder``, ``file``, ``files`` or ``parallel text``.
        splits: The parts of each split that the corpus has; the others are carved from its training split.
        revision: The commit of a Hub corpus.
    """

    kind: str
    splits: Mapping[Split, Sequence[Part]]
    revision: str | None = None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` with the nearest of ``known``, or nothing where none is near."""
    spellings = {name.lower(): name for name in known}
    longer = [
        lower for lower in spellings if lower.startswith(word.lower()) or word.lower().startswith(lower)
    ]
    nearest = get_close_matches(word.lower(), spellings, n=1) or longer[:1]
    return f" Did you mean {spellings[nearest[0]]!r}?" if nearest else ""


def listed(names: Iterable[str], most: int = 20) -> str:
    """``'a', 'b', 'c'``, cut after ``most`` names, long ones cut short: they may be a user's whole text."""
    names = list(names)
    shown = [repr(name if len(name) <= 60 else name[:57] + "...") for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")
