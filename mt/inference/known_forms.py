"""What is read in place of an unknown word: one that the model knows in other capitals, or nearly.

A vocabulary of words has each word as it was in the training text, so that ``ZWEI`` is unknown, and so is
``huose``. A line in capitals or in title case is read without them, and comes back with them.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from mt.data.as_written import in_capitals, in_lower_case, in_title_case, keys_beside
from mt.data.tokenizers.tokenizer import Tokenizer

# Shorter words have too many neighbours, words with a capital may be names, and who mistypes a word mostly
# mistypes one of the most frequent quarter.
_LEAST_LETTERS, _MOST_LETTERS, _FREQUENT = 4, 30, 0.25
_WORD = re.compile(r"[^\W\d_]+")


class KnownForms:
    """The words of a vocabulary by their capitals, and those that differ from a word by a typing error."""

    def __init__(self, tokenizer: Tokenizer, language: str) -> None:
        """Look up words of this language."""
        self._language = language
        self._tokenizer = tokenizer
        self._usual: dict[str, int] = {}
        """The most frequent form, which has the smallest id, of each word in capitals."""
        for token_id, word in enumerate(tokenizer.tokens(range(tokenizer.size))):
            if _WORD.fullmatch(word):
                self._usual.setdefault(in_capitals(word, language), token_id)
        most = _FREQUENT * tokenizer.size
        self._frequent = {word: token_id for word, token_id in self._usual.items() if token_id < most}
        # Those of scripts with capitals, in which words are spelt.
        letters = {letter for word in self._usual for letter in word}
        self._letters = sorted(letter for letter in letters if letter.lower() != letter)

    def find(self, word: str) -> int | None:
        """The id of the known word that an unknown one stands for, or None."""
        if word.isupper() and len(word) < _LEAST_LETTERS:
            return None  # An acronym.
        capitals = in_capitals(word, self._language)
        if capitals in self._usual:
            return self._usual[capitals]
        has_length = _LEAST_LETTERS <= len(word) <= _MOST_LETTERS
        if not (has_length and word.islower() and _WORD.fullmatch(word)):
            return None
        meant = self._frequent.keys() & {*_one_error_away(capitals, self._letters)}
        return min(map(self._frequent.__getitem__, meant), default=None)

    def style_of(self, line: str) -> Callable[[str, str], str] | None:
        """What makes capitals or title case of a text in a language, if a line is written so."""
        words = _WORD.findall(line)
        if len(words) < 2 or not all(word[0].isupper() for word in words):
            return None
        if all(word.isupper() for word in words):
            return in_capitals
        # A line of names is none.
        usual = [token_id for word in words[1:] if (token_id := self.usual(word)) is not None]
        return in_title_case if any(map(str.islower, self._tokenizer.tokens(usual))) else None

    def usual(self, word: str, *, is_first: bool = False) -> int | None:
        """The id of the most frequent form of a word, or of that at the beginning of a line."""
        if is_first:
            begins = word[:1] + in_lower_case(word[1:], self._language)
            token_id = self._tokenizer.library.token_to_id(begins)
            if token_id is not None and _WORD.fullmatch(word):
                return token_id
        return self._usual.get(in_capitals(word, self._language))


def _one_error_away(word: str, letters: Sequence[str]) -> Iterator[str]:
    """What was meant if two letters are swapped, or one is missing, too many, or that of a key beside it."""
    for at, letter in enumerate(word):
        before = word[:at]
        after = word[at + 1 :]
        yield before + after
        if after:
            yield before + after[0] + letter + after[1:]
        for beside in keys_beside(letter):
            yield before + beside + after
    for at in range(len(word) + 1):
        for letter in letters:
            yield word[:at] + letter + word[at:]
