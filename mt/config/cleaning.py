"""The ``cleaning`` section: what is dropped from the training pairs, and counted under its reason."""

from typing import Literal

from pydantic import Field

from mt.config.section import Section

Script = Literal[
    "any", "Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek",
    "Gujarati", "Gurmukhi", "Han", "Hangul", "Hebrew", "Japanese", "Kannada", "Khmer", "Korean", "Lao",
    "Latin", "Malayalam", "Mongolian", "Myanmar", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan",
]  # fmt: skip


class CleaningConfig(Section):
    """What is dropped from the training pairs; validation and test are never touched."""

    unicode_form: Literal["none", "NFC", "NFKC"] = "none"
    """Rewrite training text in this Unicode normalisation form first, and all text that the model reads."""

    min_characters: int = Field(default=1, ge=1)
    """Drop pairs with fewer characters on a side, blanks around the text not counted."""

    max_characters: int | None = Field(default=None, ge=1)
    """Drop pairs with more characters on a side; null keeps them (data.max_length counts tokens)."""

    max_length_ratio: float | None = Field(default=None, gt=1)
    """Drop pairs where one side has more than so many times the characters of the other; null keeps them."""

    remove_control_characters: bool = False
    """Drop pairs that hold a control character other than tab and the ends of lines."""

    src_script: Script = "any"
    """Drop pairs where more than half of the source's letters are of another script than this."""

    tgt_script: Script = "any"
    """Drop pairs where more than half of the target's letters are of another script than this."""

    remove_identical: bool = False
    """Drop pairs whose target is the source, as in text that was never translated."""

    remove_duplicates: bool = False
    """Keep the first of pairs that are the same on both sides."""

    remove_leaks: bool = False
    """Drop pairs that are in validation or test too, but for case, spacing and punctuation."""
