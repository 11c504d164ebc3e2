"""Parts of a text that must stay as they are, and entries of a dictionary: what is read as one UNK each."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mt.errors import ConfigError

DEFAULT = (
    r"\{\{[^{}\n]{1,80}\}\}",  # {{name}}
    r"\{[^{}\s]{0,80}\}",  # {name}
    r"(?<![\d%])%(?:\(\w+\))?[-+#0]*\d*(?:\.\d+)?[sdifgxou]\b",  # %s, %(name)d
    r"\$\{?[A-Z_][A-Z0-9_]*\}?",  # $NAME
    r"</?\d+/?>",  # <0>
    r"\b(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)\]}'’”»]",
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    r"(?<![\w/.~])(?:~|\.{1,2})?/[\w.-]*\w(?:/[\w.-]*\w)*/?|\b[A-Z]:\\[\w.\\-]*\w",  # /usr/bin, C:\temp
    r"(?<![\w#&])#\w+",  # #hashtag
)
"""What stays unless it is told otherwise."""

STAND_IN = "\ue001"
"""A character that no text has, and that no tokenizer joins with its neighbours."""
_GLUE = "\ue002"
"""Where a copy touches a word, it is written without the space that keeps them apart."""


_GLUED = re.compile(f" ?{_GLUE} ?")


class Item(NamedTuple):
    """A part of a text, and what is written for it."""

    start: int
    end: int
    text: str
    copy: str


class KeptParts:
    """Finds what stays, and the entries of a dictionary, in a text."""

    def __init__(self, patterns: Sequence[str], dictionary: Mapping[str, str]) -> None:
        """Look for regular expressions, and for whole words of a dictionary, of which the longest wins."""
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"{pattern!r} is no regular expression: {error}.") from error
        self._dictionary = {" ".join(entry.split()): target for entry, target in dictionary.items()}
        entries = []
        for entry in sorted(self._dictionary, key=len, reverse=True):
            words = r"\s+".join(map(re.escape, entry.split()))
            entries.append(rf"(?<![\w-]){words}(?![\w-])")
        both = [*patterns, *entries]
        self._pattern = re.compile("|".join(f"(?:{each})" for each in both)) if both else None

    def find(self, text: str) -> list[Item]:
        """The items of a text, in order."""
        items: list[Item] = []
        if self._pattern is None or STAND_IN in text or _GLUE in text:
            return items
        for match in self._pattern.finditer(text):
            if found := match[0]:
                copy = self._dictionary.get(" ".join(found.split()), found)
                items.append(Item(*match.span(), found, copy))
        return items


def with_stand_ins(text: str, items: Sequence[Item]) -> tuple[str, dict[int, Item]]:
    """The text with a character in place of each item, apart from words, and the items by where these are."""
    written, by_start, end = "", dict[int, Item](), 0
    for item in items:
        written += text[end : item.start]
        before, after = text[item.start - 1 : item.start], text[item.end : item.end + 1]
        copy, end = item.copy, item.end
        if before.isalnum() or written.endswith(STAND_IN):
            written, copy = f"{written} ", _GLUE + copy
        by_start[len(written)] = item._replace(copy=copy)
        written += STAND_IN
        if after.isalnum():
            written += " "
            by_start[len(written) - 2] = item._replace(copy=copy + _GLUE)
    return written + text[end:], by_start


def without_glue(text: str) -> str:
    """A translation in which each copy touches what it touched in the source."""
    return _GLUED.sub("", text)
