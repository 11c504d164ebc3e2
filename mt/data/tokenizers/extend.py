"""Adding the words or characters of new text to a tokenizer whose ids stay as they are."""

import json
from collections.abc import Iterable

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.subwords import BYTES, frequent_characters
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import frequent_words


def extended(tokenizer: Tokenizer, texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """``tokenizer`` with the frequent words of ``texts`` that it lacks, or characters if it has subwords.

    They follow the old entries. No merges are added: what a tokenizer of bytes writes is complete already.
    """
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
