"""Source words that are carried over into the translation: unknown ones, and those of a dictionary.

The model reads each as one unknown word, whatever it is made of: ``4711-23`` is one, and so is an entry of
the dictionary that has several words.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import DataError
from mt.regular_files import decode_utf8, read_given
from mt.special_tokens import UNK_ID

_MAX_DICTIONARY_BYTES = 2**28


class SourceToken(NamedTuple):
    """What the model reads, and what is written where that is carried over; None where it is not."""

    id: int
    copy: str | None


class SourceReader:
    """Text to source tokens, some of them to be carried over."""

    def __init__(self, tokenizer: Tokenizer, dictionary: Mapping[str, str], *, carries_over: bool) -> None:
        """Prepare to read.

        Args:
            tokenizer: Of the source language.
            dictionary: Source words, or several with blanks between, and what they are translated by.
            carries_over: Whether the model has learnt to carry words over; if not, nothing is.
        """
        self._tokenizer = tokenizer
        self._carries_over = carries_over
        # The words of an entry, as the tokenizer cuts them.
        self._entries = {
            tuple(tokenizer.encode_with_words(source)[1]): target for source, target in dictionary.items()
        }
        self._longest = max(map(len, self._entries), default=0)

    def read_batch(self, texts: Sequence[str]) -> list[list[SourceToken]]:
        """The source tokens of each text."""
        return [
            self._read(text)
            if self._carries_over and (self._entries or UNK_ID in ids)
            else [SourceToken(id_, None) for id_ in ids]
            for text, ids in zip(texts, self._tokenizer.encode_batch(texts), strict=True)
        ]

    def unknown_words(self, texts: Sequence[str]) -> tuple[int, list[str]]:
        """How many words the texts have, punctuation left out, and which of them the model does not know.

        What the dictionary translates is known, and counts as one word. To a tokenizer that can spell
        everything in bytes, nothing is unknown.
        """
        num_words = 0
        unknown: list[str] = []
        for text in texts:
            ids, words = self._tokenizer.encode_with_words(text)
            place = 0
            while place < len(ids):
                length = self._entry_at(words, place)
                is_unknown = not length and ids[place] == UNK_ID
                if is_unknown:
                    unknown.append(words[place])
                num_words += is_unknown or any(map(str.isalnum, words[place]))
                place += max(1, length)
        return num_words, unknown

    def _read(self, text: str) -> list[SourceToken]:
        ids, words = self._tokenizer.encode_with_words(text)
        touches = _touching(text, words)
        kinds = "".join(map(_kind, ids, words, touches))
        unknown = {found.start(): found.end() for found in _JOINED.finditer(kinds) if "u" in found[0].lower()}
        tokens: list[SourceToken] = []
        place = 0
        while place < len(ids):
            end = place + 1
            if length := self._entry_at(words, place):
                end = place + length
                tokens.append(SourceToken(UNK_ID, self._entries[tuple(words[place:end])]))
            elif place in unknown:
                end = unknown[place]
                tokens.append(SourceToken(UNK_ID, "".join(words[place:end])))
            else:
                # Unknown still where an entry of the dictionary has taken a part of what it is joined with.
                tokens.append(SourceToken(ids[place], words[place] if ids[place] == UNK_ID else None))
            place = end
        return tokens

    def _entry_at(self, words: list[str], place: int) -> int:
        """How many words the longest entry has that stands here; 0 for none."""
        lengths = range(min(self._longest, len(words) - place), 0, -1)
        return next((n for n in lengths if tuple(words[place : place + n]) in self._entries), 0)


# Of kinds as `_kind` gives them: unknown words, digits and capital letters without a blank between them, but
# perhaps with punctuation.
_JOINED = re.compile(r"[uUdD](?:P*[UD])*")


def _kind(id_: int, word: str, touches: bool) -> str:
    """Unknown, digits or capitals, punctuation, or another word; in upper case if no blank is before."""
    if id_ == UNK_ID:
        kind = "u"
    elif word.isupper() or any(character.isdigit() for character in word):
        kind = "d"
    else:
        kind = "w" if any(character.isalnum() for character in word) else "p"
    return kind.upper() if touches else kind


def _touching(text: str, words: list[str]) -> list[bool]:
    """For each word of a text whether no blank stands before it."""
    touching = []
    end = 0
    for word in words:
        start = text.index(word, end)
        touching.append(start == end and start > 0)
        end = start + len(word)
    return touching


def read_dictionary(path: Path) -> dict[str, str]:
    """Read lines of ``source<TAB>target``; empty ones are passed over.

    Raises:
        DataError: If the file cannot be read, or a line is no such pair, or contradicts another.
    """
    try:
        lines = decode_utf8(read_given(path, max_bytes=_MAX_DICTIONARY_BYTES), path).split("\n")
    except OSError as error:
        raise DataError(f"the dictionary {path} cannot be read: {error.strerror}.") from error
    entries: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        source, _, target = (" ".join(part.split()) for part in line.partition("\t"))
        if not source or not target:
            raise DataError(
                f"{path}, line {number} is not a word, a tab and its translation: {line.strip()[:40]!r}."
            )
        if entries.setdefault(source, target) != target:
            raise DataError(
                f"{path}, line {number} translates {source!r} otherwise than a line before. Keep one of them."
            )
    return entries
