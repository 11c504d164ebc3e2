"""Training a vocabulary of any kind, and adding the words or characters of new text to one."""

import json
from collections.abc import Iterable

import tokenizers

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.subwords import (
    BYTES,
    byte_level_bpe,
    character_level,
    frequent_characters,
    metaspace_bpe,
)
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.word_level import count_words, word_level
from mt.errors import DataError
from mt.special_tokens import SPECIAL_TOKENS


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a vocabulary of the most frequent words, subwords or characters; this is deterministic."""
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


def extended(tokenizer: Tokenizer, texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """``tokenizer`` with the frequent words of ``texts`` that it lacks, or characters if it has subwords."""
    content = json.loads(tokenizer.to_json())
    vocabulary: dict[str, int] = content["model"]["vocab"]
    if config.kind == "word":
        entries = frequent_words(texts, config)
    elif BYTES[0] in vocabulary:
        entries = frequent_characters(texts, config)
    else:
        entries = []
    for entry in entries:
        vocabulary.setdefault(entry, len(vocabulary))
    return Tokenizer.from_json(json.dumps(content).encode())


def old_pieces(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """What the old tokenizer has written instead of each entry that the new one adds: bytes, or nothing."""
    ids = old.library.get_vocab()
    if BYTES[0] not in ids:
        return [[] for _ in range(old.size, new.size)]
    added = (str(new.library.id_to_token(token_id)) for token_id in range(old.size, new.size))
    return [[ids[BYTES[byte]] for byte in entry.encode()] for entry in added]
