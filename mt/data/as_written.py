"""Text as people write it: what a training text lacks, made of its own lines.

Each change is a function of a text, so that a test set can be changed in the same way.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mt.data.text_form import has_dotless_i
from mt.data.unsegmented_scripts import NO_SPACE_AFTER

if TYPE_CHECKING:
    import numpy as np

_FIRST_LETTER = re.compile(r"(?<![\w'’])[^\W\d_]")
_FINAL = ".!?…。！？।۔؟"
_WORD = re.compile(r"[^\W\d_]{3,}")
_KEYS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_TYPOS_PER_WORD = 0.1
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_EMOJI = "😀😂😍👍🙏🎉🔥💙🚀🌍🍕🐈"


def in_capitals(text: str, language: str) -> str:
    """``A dog.`` -> ``A DOG.``"""
    return (text.replace("i", "İ") if has_dotless_i(language) else text).upper()


def in_lower_case(text: str, language: str) -> str:
    """``A DOG.`` -> ``a dog.``"""
    return (text.replace("İ", "i").replace("I", "ı") if has_dotless_i(language) else text).lower()


def in_title_case(text: str, language: str) -> str:
    """``A big dog.`` -> ``A Big Dog.``"""
    return _FIRST_LETTER.sub(lambda letter: in_capitals(letter[0], language), text)


def without_final_punctuation(text: str) -> str:
    """``A dog.`` -> ``A dog``"""
    return text.rstrip().rstrip(_FINAL).rstrip()


def with_typos(text: str, generator: "np.random.Generator") -> str:
    """A text with a typing error in a tenth of its words, but at least in one of three letters or more."""
    words = [*_WORD.finditer(text)]
    if not words:
        return text
    is_wrong = generator.random(len(words)) < _TYPOS_PER_WORD
    is_wrong[generator.integers(len(words))] |= not is_wrong.any()
    parts = []
    end = 0
    for word, wrong in zip(words, is_wrong, strict=True):
        parts.append(text[end : word.start()])
        parts.append(_misspelt(word[0], generator) if wrong else word[0])
        end = word.end()
    return "".join([*parts, text[end:]])


def _misspelt(word: str, generator: "np.random.Generator") -> str:
    """A word with two letters swapped, one missing, one doubled, or one that is beside it on the keyboard."""
    at = int(generator.integers(len(word)))
    before = word[:at]
    letter = word[at]
    after = word[at + 1 :]
    kind = ("swapped", "missing", "doubled", "beside")[generator.integers(4)]
    if kind == "swapped" and after:
        return before + after[0] + letter + after[1:]
    if kind == "missing":
        return before + after
    if kind == "beside" and (beside := keys_beside(letter)):
        return before + beside[generator.integers(len(beside))] + after
    return before + letter + letter + after


def keys_beside(letter: str) -> list[str]:
    """The letters to the left and right of this one, and around it in the rows above and below; its case."""
    for number, row in enumerate(_KEYS):
        at = row.find(letter.lower())
        if at < 0:
            continue
        left = max(0, at - 1)
        keys = row[left:at] + row[at + 1 : at + 2]
        if number:
            keys += _KEYS[number - 1][at : at + 2]
        if number + 1 < len(_KEYS):
            keys += _KEYS[number + 1][left : at + 1]
        return [*(keys.upper() if letter.isupper() else keys)]
    return []


def joined(texts: Sequence[str]) -> str:
    """Several lines or sentences as one, with spaces between them where their script has them."""
    line = ""
    for text in filter(None, texts):
        line += text if not line or NO_SPACE_AFTER.match(line[-1]) else f" {text}"
    return line


def noise(generator: "np.random.Generator") -> str:
    """A line that is no language: random characters, emoji, or an address on the Web."""

    def some(letters: str, most: int) -> str:
        return "".join(generator.choice([*letters], size=generator.integers(3, most)))

    kind = generator.integers(3)
    if kind == 0:
        return " ".join(some(_ALPHABET, 12) for _ in range(generator.integers(1, 6)))
    if kind == 1:
        return some(_EMOJI, 6)
    return f"https://www.{some(_ALPHABET, 10)}.com/{some(_ALPHABET, 8)}"
