"""Training a vocabulary of any kind."""

from collections.abc import Iterable

import tokenizers

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.subwords import byte_level_bpe, character_level, metaspace_bpe
from mt.data.tokenizers.tokenizer import Tokenizer, not_unicode
from mt.data.tokenizers.word_level import count_words, word_level
from mt.errors import DataError
from mt.special_tokens import SPECIAL_TOKENS


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a vocabulary of the most frequent words, subwords or characters; this is deterministic.

    ``texts`` are lines of the training split, of both languages for a shared vocabulary; they may be iterated
    over twice.
    """
    makers = {
        "word": _word_tokenizer,
        "char": character_level,
        "bpe": byte_level_bpe,
        "bpe_metaspace": metaspace_bpe,
    }
    try:
        return Tokenizer(
            makers[config.kind](
                texts,
                max_size=config.max_size,
                min_frequency=config.min_frequency,
                lowercase=config.lowercase,
            )
        )
    except UnicodeEncodeError as error:
        raise not_unicode(error) from error


def _word_tokenizer(
    texts: Iterable[str], *, max_size: int, min_frequency: int, lowercase: bool
) -> tokenizers.Tokenizer:
    """A tokenizer of the frequent words, numbered in the order of `frequent_words`."""
    words = frequent_words(texts, min_frequency, lowercase=lowercase)
    if not words:
        raise DataError(
            f"the training text has no word that occurs {min_frequency} times or more "
            "(tokenizer.min_frequency). Lower it, or give more text."
        )
    entries = [*SPECIAL_TOKENS, *words][:max_size]
    return word_level({entry: i for i, entry in enumerate(entries)}, lowercase=lowercase)


def frequent_words(texts: Iterable[str], min_frequency: int, *, lowercase: bool) -> list[str]:
    """The words that occur ``min_frequency`` times or more, by descending frequency, then by characters."""
    frequencies = count_words(texts, lowercase=lowercase)
    return sorted(
        (word for word, frequency in frequencies.items() if frequency >= min_frequency),
        key=lambda word: (-frequencies[word], word),
    )
