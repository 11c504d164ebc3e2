"""The form of text: one Unicode form, and nothing that cannot be seen, in training and translating alike.

The rules are normalizers of the library, so that a tokenizer.json holds them too.
"""

import re
from collections.abc import Iterable
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Self
from unicodedata import is_normalized

from tokenizers import Regex, normalizers

if TYPE_CHECKING:
    from mt.config.data import CleaningConfig, Invisible, UnicodeForm

_UNICODE_FORMS: tuple["UnicodeForm", ...] = ("NFC", "NFKC", "none")
_INVISIBLE: tuple["Invisible", ...] = ("drop", "keep")
_EMOJI = r"\p{Extended_Pictographic}"
_SKIN_TONES = r"\x{1F3FB}-\x{1F3FF}"
_TAGS = r"[\x{E0000}-\x{E007F}]"
_JOINED_LETTER = (
    r"[[\p{L}\p{M}]&&[^\p{Common}\p{Inherited}\p{Latin}\p{Greek}\p{Cyrillic}\p{Han}\p{Hiragana}"
    r"\p{Katakana}\p{Hangul}]]\p{Mn}{0,3}"
)
_RIGHT_TO_LEFT = r"[\p{L}&&[\p{Hebrew}\p{Arabic}\p{Syriac}\p{Thaana}\p{Nko}\p{Adlam}]]"
# In each rule the dot behind a letter is the character itself. What is looked at is bounded, so that a line
# of a million such characters takes no longer than others.
_RULES = (
    r"[\x{AD}\x{200B}\x{2060}-\x{2064}\x{206A}-\x{206F}\x{FEFF}\x{FFF9}-\x{FFFB}\x{1BCA0}-\x{1BCA3}"
    r"\x{1D173}-\x{1D17A}]",
    r"\x{180E}(?<![\p{L}&&\p{Mongolian}].)",
    # Joiners change the look of letters in such scripts as Arabic and Devanagari, also at the end of a word.
    rf"[\x{{200C}}\x{{200D}}](?<!{_JOINED_LETTER}.)(?:(?<!{_EMOJI}[\x{{FE0F}}{_SKIN_TONES}]?.)|(?!{_EMOJI}))",
    r"[\x{61C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}]"
    rf"(?<!{_RIGHT_TO_LEFT}.{{0,200}})(?!.{{0,200}}{_RIGHT_TO_LEFT})",
    # The flags of England, Scotland and Wales are a black flag and invisible letters.
    rf"{_TAGS}(?<!\x{{1F3F4}}{_TAGS}{{1,8}})",
    # The first emoji were letters: 1, U+FE0F and U+20E3 are a keycap.
    rf"\x{{FE0F}}(?<![{_EMOJI}{_SKIN_TONES}].)(?:(?<![0-9#*].)|(?!\x{{20E3}}))",
)
# White space, control characters, what Unicode calls ignorable by default, and an empty Braille pattern.
_NOTHING_TO_SEE = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*"
)
_DROP_INVISIBLE = normalizers.Replace(Regex("|".join(_RULES)), "")
# Also those of the Moses scripts. The ampersand last, because it begins the others.
_NAMED = {"quot": '"', "apos": "'", "lt": "<", "gt": ">", "nbsp": "\u00a0", "#34": '"', "#39": "'"}
_NAMED |= {"#91": "[", "#93": "]", "#124": "|", "#160": "\u00a0", "amp": "&"}
_UNESCAPE_HTML: list[normalizers.Normalizer] = [
    normalizers.Replace(f"&{name};", sign) for name, sign in _NAMED.items()
]


def shows_nothing(text: str) -> bool:
    """Whether a text has no visible character, so that it is an empty line to all of mt."""
    return _NOTHING_TO_SEE.fullmatch(text) is not None


class TextForm(NamedTuple):
    """What the ``cleaning`` section rewrites in each text."""

    unicode_form: "UnicodeForm" = "none"
    invisible: "Invisible" = "keep"
    unescape_html: bool = False

    @classmethod
    def of(cls, cleaning: "CleaningConfig") -> Self:
        """The form that a config asks for."""
        return cls(cleaning.unicode_form, cleaning.invisible, cleaning.unescape_html)

    @classmethod
    def in_front_of(cls, normalizer: normalizers.Normalizer | None) -> tuple[Self, normalizers.Normalizer]:
        """The form that a tokenizer's normalizer begins with, and the rest of the normalizer."""
        steps = [] if normalizer is None else [normalizer]
        if isinstance(normalizer, normalizers.Sequence):
            steps = [normalizer[i] for i in range(len(normalizer))]
        forms = [cls(*fields) for fields in product(_UNICODE_FORMS, _INVISIBLE, (True, False))]
        fitting = [form for form in forms if repr(steps[: len(form.steps())]) == repr(form.steps())]
        form = max(fitting, key=lambda form: len(form.steps()))
        return form, normalizers.Sequence(steps[len(form.steps()) :])

    def steps(self) -> list[normalizers.Normalizer]:
        """The normalizers that write a text in this form."""
        steps: list[normalizers.Normalizer] = [*_UNESCAPE_HTML] if self.unescape_html else []
        if self.invisible == "drop":
            steps.append(_DROP_INVISIBLE)
        if self.unicode_form != "none":
            steps.append(normalizers.NFC() if self.unicode_form == "NFC" else normalizers.NFKC())
        return steps

    def rewrite(self, texts: Iterable[str]) -> list[str]:
        """The texts in this form; one that `shows_nothing` is empty, unless what is invisible is kept."""
        rewrite = normalizers.Sequence(self.steps()).normalize_str
        formed = [text if self._has(text) else rewrite(text) for text in texts]
        if self.invisible == "keep":
            return formed
        return ["" if shows_nothing(text) else text for text in formed]

    def _has(self, text: str) -> bool:
        """Whether a text is certain to have this form; asking is ten times faster than rewriting."""
        if self.unescape_html and "&" in text:
            return False
        if text.isascii():
            return True
        # What cannot be seen is not printable, but for U+FE0F.
        if self.invisible == "drop" and not (text.isprintable() and "\ufe0f" not in text):
            return False
        return self.unicode_form == "none" or is_normalized(self.unicode_form, text)


def has_dotless_i(language: str) -> bool:
    """Whether the capital of i is İ, and that of ı is I, as in Turkish and Azeri."""
    return re.split("[-_]", language.lower())[0] in ("tr", "tur", "az", "aze")


def before_lower_case(language: str) -> list[normalizers.Normalizer]:
    """What comes before lower case: in Turkish and Azeri, that of I is ı, and that of İ is i."""
    if not has_dotless_i(language):
        return []
    return [normalizers.Replace("İ", "i"), normalizers.Replace("I", "ı")]
