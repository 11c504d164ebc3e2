"""Unsegmented scripts, which have no spaces between words."""

import re
from collections.abc import Sequence

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_OTHERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer.
_PUNCTUATION = "\u3000-\u303f\uff00-\uff65"
LETTER = re.compile(f"[{_HAN}{_KANA}{_OTHERS}]")
_LETTER_OR_MARK = re.compile(f"[{_HAN}{_KANA}{_OTHERS}{_PUNCTUATION}]")
# Thai, Lao, Burmese and Khmer have spaces between sentences, though not between words.
NO_SPACE_AFTER = re.compile(f"[{_HAN}{_KANA}{_PUNCTUATION}]")
NO_HAN = re.compile(f"[{_KANA}{_OTHERS}]")
_WORD = re.compile(r"[^\W\d_]+")


def split_letters(line: str) -> str:
    """The line with spaces around each letter and punctuation mark of these scripts."""
    return _LETTER_OR_MARK.sub(r" \g<0> ", line)


def is_unsegmented(lines: Sequence[str]) -> bool:
    """Whether most words of the lines are in these scripts, each of whose letters is nearly a word."""
    text = "\n".join(lines)
    return len(LETTER.findall(text)) > len(_WORD.findall(LETTER.sub(" ", text)))
