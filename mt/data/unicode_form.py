"""Unicode normalisation, by one library for the text to train on and the text to translate.

Python has its own tables, but of another version of Unicode: to those of `tokenizers`, some newer characters,
such as the name of the era Reiwa, are unknown.
"""

from collections.abc import Iterable

from tokenizers import normalizers

from mt.config.data import UnicodeForm


def normalise_all(texts: Iterable[str], form: UnicodeForm) -> list[str]:
    """The texts in a Unicode form."""
    if form == "none":
        return list(texts)
    normalise = (normalizers.NFC() if form == "NFC" else normalizers.NFKC()).normalize_str
    return [text if text.isascii() else normalise(text) for text in texts]
