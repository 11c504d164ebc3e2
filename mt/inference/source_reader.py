"""Source words that are copied into the translation (unknown ones), or replaced by a dictionary's target.

The model reads each of them as one UNK, however many tokens it consists of: ``4711-23`` is one UNK, and so is
a dictionary entry of several words.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.unsegmented_scripts import split_letters
from mt.errors import DataError
from mt.files import read_text
from mt.special_tokens import UNK_ID

_MAX_DICTIONARY_BYTES = 2**28
_NUM_REMEMBERED = 1000


class SourceToken(NamedTuple):
    """A token of the source."""

    id: int
    """The id that the model reads."""
    copy: str | None
    """The text to write if search copies this token; None if it cannot be copied."""


class SourceReader:
    """Turns text into source tokens and marks those that can be copied."""

    def __init__(self, tokenizer: Tokenizer, dictionary: Mapping[str, str], *, copies: bool) -> None:
        """Create a reader; ``copies`` says whether the model has learnt to copy unknown words.

        The ``dictionary`` has source words, or several separated by spaces. A word is found in any
        canonically equivalent spelling: an accent may be a separate character.
        """
        self.tokenizer = tokenizer
        self._copies = copies
        # The words of an entry, as the tokenizer splits it.
        self._entries: dict[tuple[str, ...], str] = {}
        for source, target in dictionary.items():
            words = _entry_of(tokenizer.encode_with_words(source)[1])
            if self._entries.setdefault(words, target) != target:
                raise DataError(
                    f"the dictionary translates {source!r} differently from another entry that is the same "
                    "words for the tokenizer. Keep only one of them."
                )
        self._longest = max(map(len, self._entries), default=0)
        # A token that cannot be copied is made once, not for each text: many objects keep Python's garbage
        # collector busy.
        self._tokens = [SourceToken(id_, None) for id_ in range(tokenizer.size)]
        # A text with unknown words is read, and then its unknown words are counted.
        self._analyse = lru_cache(_NUM_REMEMBERED)(self._analyse_anew)

    def read_batch(self, texts: Sequence[str]) -> list[list[SourceToken]]:
        """The source tokens of each text."""
        return [
            [token for token, _ in self.read_with_parts(text)]
            if self._copies and (self._entries or UNK_ID in ids)
            else [self._tokens[id_] for id_ in ids]
            for text, ids in zip(texts, self.tokenizer.encode_batch(texts), strict=True)
        ]

    def unknown_words(self, texts: Sequence[str], known: Sequence[bool] = ()) -> tuple[int, list[str]]:
        """Count the words of the texts without punctuation, and list those that the model does not know.

        ``known`` says for each text whether it is without UNK, where that was found out before.

        Parts joined by punctuation, as in ``B-4711``, are one word, which is unknown if one of them is. A
        dictionary entry that is read as such is known. With a tokenizer that can spell everything in bytes,
        no word is unknown.
        """
        num_words = 0
        unknown: list[str] = []
        known = known or [UNK_ID not in ids for ids in self.tokenizer.encode_batch(texts)]
        for text, is_known in zip(texts, known, strict=True):
            if is_known and not _has_unsegmented(text):
                num_words += len(_CHUNK.findall(text))
                continue
            kinds, parts = self._parts(text)
            for found in _WORD.finditer(kinds):
                num_words += 1
                if "u" in found[0].lower():
                    unknown.append("".join(parts[found.start() : found.end()]))
        return num_words, unknown

    def _parts(self, text: str) -> tuple[str, list[str]]:
        """A kind for each part of a text, and the parts, which are those of `_spans`.

        The kinds are those of `_kind`, and ``C`` for a subword that continues a word.
        """
        _, words, touches, kinds = self._analyse(text)
        part_kinds = ""
        parts: list[str] = []
        for start, end, is_entry in self._spans(words, kinds):
            part = _spelt(words[start:end], touches[start:end])
            kind = kinds[start]
            if is_entry:
                kind = "W" if touches[start] else "w"
            elif end > start + 1:
                kind = "U" if touches[start] else "u"
            elif kind == "W" and not any(map(_has_unsegmented, (part, *words[start - 1 : start]))):
                kind = "C"
            part_kinds += kind
            parts.append(part)
        return part_kinds, parts

    def _analyse_anew(self, text: str) -> tuple[list[int], list[str], list[bool], str]:
        """The ids and words of a text, whether each word touches the one before it, and its kind."""
        [text] = self.tokenizer.form.rewrite([text])
        ids, words = self.tokenizer.encode_with_words(text)
        touches = _touching(text, words)
        return ids, words, touches, "".join(map(_kind, ids, words, touches))

    def read_with_parts(self, text: str) -> list[tuple[SourceToken, str]]:
        """The source tokens of a text, each with the part of the text that it represents."""
        ids, words, touches, kinds = self._analyse(text)
        if not self._copies:
            return [(SourceToken(id_, None), word) for id_, word in zip(ids, words, strict=True)]
        tokens: list[tuple[SourceToken, str]] = []
        for start, end, is_entry in self._spans(words, kinds):
            part = _spelt(words[start:end], touches[start:end])
            if is_entry:
                tokens.append((SourceToken(UNK_ID, self._entries[_entry_of(words[start:end])]), part))
            elif ids[start] != UNK_ID and end == start + 1:
                tokens.append((SourceToken(ids[start], None), part))
            elif part:
                # An unknown space, as before a Chinese name in a Latin script, cannot be copied.
                tokens.append((SourceToken(UNK_ID, part), part))
        return tokens

    def _spans(self, words: list[str], kinds: str) -> Iterator[tuple[int, int, bool]]:
        """Where each part of a text starts and ends, and whether it is a dictionary entry.

        The other parts are unknown words with what is joined with them, and single tokens. An entry within
        the former is ignored: if the model reads the halves of such a word apart, it often drops one.
        """
        unknown = {found.start(): found.end() for found in _JOINED.finditer(kinds) if "u" in found[0].lower()}
        start = 0
        while start < len(words):
            length = self._entry_at(words, start)
            end = start + length if length else unknown.get(start, start + 1)
            yield start, end, length > 0
            start = end

    def _entry_at(self, words: list[str], place: int) -> int:
        """The number of words of the longest dictionary entry at this place; 0 if there is none."""
        lengths = range(min(self._longest, len(words) - place), 0, -1)
        return next((n for n in lengths if _entry_of(words[place : place + n]) in self._entries), 0)


def _entry_of(words: Sequence[str]) -> tuple[str, ...]:
    """The words as a key of the dictionary; equal for canonically equivalent ones."""
    return tuple(normalize("NFC", word) for word in words)


# Matches the kinds that `_kind` returns: unknown words, digits and upper-case words without a space between
# them, but perhaps with punctuation.
_JOINED = re.compile(r"[uUdD](?:P*[UD])*")
# From its first letter or digit to its end, whatever is between two spaces.
_CHUNK = re.compile(r"[^\W_]\S*")
# Letters of an unsegmented script touch, and are separate words.
_WORD = re.compile(r"[udwUDWC](?:P*[UDC]|P+W)*")


def _has_unsegmented(text: str) -> bool:
    return split_letters(text) != text


def _kind(id_: int, word: str, touches: bool) -> str:
    """Describe a token by a letter, in upper case if no space precedes the token.

    ``u`` is unknown, ``d`` digits or upper case, ``p`` punctuation or a space, ``w`` anything else.
    """
    if id_ == UNK_ID and word:
        kind = "u"
    elif word.isupper() or any(character.isdigit() for character in word):
        kind = "d"
    else:
        kind = "w" if any(character.isalnum() for character in word) else "p"
    return kind.upper() if touches else kind


def _touching(text: str, words: list[str]) -> list[bool]:
    """For each word of a text, whether it follows the previous word without a space."""
    touching = []
    end = 0
    for word in words:
        start = text.index(word, end)
        touching.append(start == end and start > 0)
        end = start + len(word)
    return touching


def _spelt(words: Sequence[str], touches: Sequence[bool]) -> str:
    """Several words of a text as they stand there, with one space for any number of them."""
    spaced = (word if touch else f" {word}" for word, touch in zip(words, touches, strict=True))
    return "".join(spaced).removeprefix(" ")


def read_dictionary(path: Path) -> dict[str, str]:
    """Read a dictionary from lines of ``source<TAB>target``; empty lines are skipped."""
    try:
        lines = read_text(path, max_bytes=_MAX_DICTIONARY_BYTES).split("\n")
    except OSError as error:
        raise DataError(f"the dictionary {path} cannot be read: {error.strerror}.") from error
    entries: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        parts = [" ".join(part.split()) for part in line.split("\t")]
        if len(parts) != 2 or not all(parts):
            raise DataError(
                f"{path}, line {number} is not a word, a tab and its translation: {line.strip()[:40]!r}."
            )
        source, target = normalize("NFC", parts[0]), parts[1]
        if entries.setdefault(source, target) != target:
            raise DataError(
                f"{path}, line {number} translates {source!r} differently from an earlier line. Keep only "
                "one of them."
            )
    return entries
