"""What a page consists of: text, tags around words, and what ends a text."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Format = Literal["text", "html", "markdown"]
"""How what is to be translated is written."""
Kind = Literal["text", "open", "close", "point", "stay"]
"""``open`` and ``close`` are around words, a ``point`` is beside one, and ``stay`` is read as a word."""


class Piece(NamedTuple):
    """A part of a page; joined, the pieces are the page."""

    kind: Kind
    raw: str
    name: str = ""
    """What a tag that opens and the one that closes it have in common."""
    values: Sequence[tuple[int, int]] = ()
    """Where attributes that are text stand, with their quotes."""
    ends_text: bool = False
    """Whether what stands before and behind it is translated apart."""


def partners(pieces: Iterable[Piece]) -> dict[int, int]:
    """The tags that close those that open, by index: each the last open one of its name."""
    opened: dict[str, list[int]] = {}
    found: dict[int, int] = {}
    for index, piece in enumerate(pieces):
        if piece.kind in ("open", "stay") and piece.name:
            opened.setdefault(piece.name, []).append(index)
        elif piece.kind == "close" and opened.get(piece.name):
            found[opened[piece.name].pop()] = index
    return found
