"""The common form of all corpora before they are checked: splits of numbered pairs."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from mt.data.sources.text import unreadable
from mt.files import sha256

Split = Literal["train", "validation", "test"]

# Names of files and Hub splits, in any case: of several, the first is read.
SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev", "development", "eval"),
    "test": ("test", "testing", "devtest"),
}

# The number of the line or row, counted from 1, the source and the target. The last two are not
# checked yet: missing text is None, and a JSON file may contain a number instead of text.
NumberedPair = tuple[int, object, object]


class BadRow(NamedTuple):
    """A row that cannot be read; it takes the place of the source of its pair."""

    reason: str
    """The same for all rows of its kind; it completes the sentence "in 5 rows ..."."""
    detail: str = ""


@dataclass(frozen=True)
class Part:
    """One file, two of parallel text, or one split of a Hub corpus."""

    where: str
    """Its name in messages, such as ``data/train.jsonl``."""
    unit: Literal["line", "row"]
    pairs: Callable[[], Iterator[NumberedPair]]
    """Each call reads them from the first on, which raises `DataError` if the file is damaged."""
    files: tuple[Path, ...] = ()
    commit: str | None = None
    """That of a Hub corpus, which identifies its pairs."""

    def identify(self) -> str | None:
        """A digest that changes whenever the pairs do (with the same config and program)."""
        try:
            return "".join(map(sha256, self.files)) or self.commit
        except OSError as error:
            raise unreadable(error.filename, error) from None


Splits = dict[Split, list[Part]]


@dataclass(frozen=True)
class Source:
    """A corpus that was found but not read yet."""

    kind: Literal["built-in", "hub", "folder", "files"]
    splits: Splits
    """The others are carved from the training split."""


def listed(names: Iterable[str], most: int = 20) -> str:
    """``'a', 'b', 'c'``, at most ``most`` of them, long ones shortened: they may be whole sentences."""
    names = list(names)
    shown = [repr(name if len(name) <= 60 else name[:57] + "...") for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def held_out_split(src: str, fraction: float) -> Split:
    """The split of a pair in a corpus without splits: a ``fraction`` each is for validation and test."""
    digest = blake2b(" ".join(src.split()).encode(), digest_size=8).digest()
    position = int.from_bytes(digest, "big") / 2**64
    if position < fraction:
        return "validation"
    return "test" if position < 2 * fraction else "train"


def named_path(text: str) -> Path:
    """The path that the user wrote: a tilde at its start is a home folder, if there is one."""
    return Path(os.path.expanduser(text))  # noqa: PTH111
