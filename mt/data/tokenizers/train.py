"""Training a vocabulary of any kind."""

from collections.abc import Iterable

import tokenizers

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.subwords import byte_level_bpe, character_level, metaspace_bpe
from mt.data.tokenizers.tokenizer import Tokenizer
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
    return Tokenizer(makers[config.kind](texts, config))


def _word_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> tokenizers.Tokenizer:
    """A tokenizer of the frequent words, numbered in the order of `frequent_words`."""
    words = frequent_words(texts, config)
    if not words:
        raise DataError(
            f"the training text has no word that occurs {config.min_frequency} times or more "
            "(tokenizer.min_frequency). Lower it, or give more text."
        )
    entries = [*SPECIAL_TOKENS, *words][: config.max_size]
    return word_level({entry: i for i, entry in enumerate(entries)}, lowercase=config.lowercase)


def frequent_words(texts: Iterable[str], config: TokenizerConfig) -> list[str]:
    """The words that occur ``min_frequency`` times or more, by descending frequency, then by characters."""
    frequencies = count_words(texts, lowercase=config.lowercase)
    words = (word for word, frequency in frequencies.items() if frequency >= config.min_frequency)
    return sorted(words, key=lambda word: (-frequencies[word], word))
