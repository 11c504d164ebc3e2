"""Parts of a text that must stay as they are, and entries of a dictionary: what is read as one UNK each."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mt.data.unsegmented_scripts import LETTER
from mt.errors import ConfigError

_BEGINS = "(?<![A-Za-z0-9])"
_ADDRESS = r"[^\s<>\"。，、！？；：）」』】]{0,2000}[^\s<>\".,;:!?)\]}'’”»。，、！？；：）」』】]"
# All repetitions are bounded, so that no line takes longer than its length. Each pattern has what every text
# that it matches contains: most lines have none of it.
_SIGN_OF = {
    r"\{\{[^{}\n]{1,80}\}\}": "{{",  # {{name}}
    r"\{[^{}\s]{0,80}\}": "{",  # {name}
    r"(?<![\d%])%(?:\(\w{1,80}\))?[-+#0]{0,4}\d{0,4}(?:\.\d{1,4})?[sdifgxou]\b": "%",  # %s, %(name)d
    r"\$\{?[A-Z_][A-Z0-9_]{0,80}\}?": "$",  # $NAME
    r"</?\d{1,4}/?>": "<",  # <0>
    rf"{_BEGINS}https?://{_ADDRESS}": "://",
    rf"{_BEGINS}www\.{_ADDRESS}": "www.",
    r"(?<![A-Za-z0-9._+-])[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}": "@",
    r"(?<![\w/.~<])(?:~|\.{1,2})?(?:/[\w-](?:[\w.-]{0,100}[\w-])?){1,30}/?": "/",  # /usr/bin
    r"\b[A-Z]:\\[\w.\\-]{0,250}\w": "\\",  # C:\temp
    r"(?<![\w#&])#\w{1,100}": "#",  # #hashtag
}
DEFAULT = (*_SIGN_OF,)
"""What stays unless it is told otherwise."""

MARK = "\U000f0000\\d+\U000f0001"
"""The pattern of what `marked` gives."""
STAND_IN = "\ue001"
"""A character that no text has, and that no tokenizer joins with its neighbours."""
_OPENING = " ([{\"'„“«‹‘¿¡"
_TOUCHES_WORD, _TOUCHES_SIGN = "\ue002", "\ue003"
"""Where a copy touched a word, it is written without a space; where it touched a sign, after signs."""
_NO_SPACE = re.compile(f" ?{_TOUCHES_WORD} ?|(?<=[^\\w\\s]) {_TOUCHES_SIGN}|{_TOUCHES_SIGN}")


def marked(number: int) -> str:
    """What stands in a text for the numbered one of the things that stay."""
    return f"\U000f0000{number}\U000f0001"


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
        self._patterns: list[tuple[str, re.Pattern[str]]] = []
        for pattern in patterns:
            try:
                self._patterns.append((_SIGN_OF.get(pattern, ""), re.compile(pattern)))
            except re.error as error:
                raise ConfigError(f"{pattern!r} is no regular expression: {error}.") from error
        self._dictionary = {" ".join(entry.split()): target for entry, target in dictionary.items()}
        entries = [_whole(entry) for entry in sorted(self._dictionary, key=len, reverse=True)]
        if entries:
            self._patterns.append(("", re.compile("|".join(entries))))

    def find(self, text: str) -> list[Item]:
        """The items of a text, in order: of those that overlap, the first, or the longest of these."""
        spans = []
        for sign, pattern in self._patterns:
            if sign in text:
                spans += [match.span() for match in pattern.finditer(text)]
        if not spans or any(mark in text for mark in (STAND_IN, _TOUCHES_WORD, _TOUCHES_SIGN)):
            return []
        items: list[Item] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            if start < end and (not items or start >= items[-1].end):
                found = text[start:end]
                items.append(Item(start, end, found, self._dictionary.get(" ".join(found.split()), found)))
        return items

    def apart(self, line: str) -> tuple[list[str], list[str]]:
        """The parts of a line around what stays beside punctuation, and what stands around these parts."""
        texts = list[str]()
        between = [""]
        start = 0
        for item in self.find(line):
            before = line[start : item.start].rstrip()
            after = line[item.end :].lstrip()
            if before and after and _is_of_word(before[-1]) and _is_of_word(after[0]):
                continue
            part = before.rstrip(_OPENING)
            if part:
                texts.append(part)
                between.append("")
            part_end = start + len(part)
            start = item.end
            while start < len(line) and not _is_of_word(line[start]):
                start += 1
            between[-1] += line[part_end:start]
        if start < len(line) or not line:
            texts.append(line[start:])
            between.append("")
        return texts, between

    def without(self, text: str) -> str:
        """The rest of a text."""
        for item in reversed(self.find(text)):
            text = f"{text[: item.start]} {text[item.end :]}"
        return text


def _whole(entry: str) -> str:
    """The pattern of an entry, which is not a part of a word or a compound where words have spaces."""
    words = r"\s+".join(map(re.escape, entry.split()))
    before = "" if LETTER.match(entry[:1]) else r"(?<![\w-])"
    after = "" if LETTER.match(entry[-1:]) else r"(?![\w-])"
    return f"{before}{words}{after}"


def with_stand_ins(text: str, items: Sequence[Item]) -> tuple[str, dict[int, Item]]:
    """The text with a character in place of each item, apart from words, and the items by where these are."""
    parts = list[str]()
    by_start = dict[int, Item]()
    end = 0
    length = 0
    for item in items:
        before = text[item.start - 1 : item.start]
        copy = item.copy
        if _is_of_word(before) or item.start == end > 0:
            gap = " "
            copy = _TOUCHES_WORD + copy
        else:
            gap = ""
            copy = _TOUCHES_SIGN + copy if before.strip() else copy
        parts.append(text[end : item.start] + gap)
        end = item.end
        length += len(parts[-1])
        if _is_of_word(text[end : end + 1]):
            by_start[length] = item._replace(copy=copy + _TOUCHES_WORD)
            parts.append(f"{STAND_IN} ")
        else:
            by_start[length] = item._replace(copy=copy)
            parts.append(STAND_IN)
        length += len(parts[-1])
    return "".join([*parts, text[end:]]), by_start


def _is_of_word(character: str) -> bool:
    """Whether it is a letter, a mark or the like, with which the stand-in would be one word."""
    return bool(character) and not character.isspace() and unicodedata.category(character)[0] not in "PS"


def without_marks(text: str) -> str:
    """A translation in which each copy touches what it touched in the source."""
    return _NO_SPACE.sub("", text)
