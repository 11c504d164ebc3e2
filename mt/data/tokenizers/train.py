"""Training a vocabulary of any kind, and adding the words or characters of new text to one.

With characters and subwords no word is unknown, because rare characters become bytes.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.word_level import ESCAPE, SPACE_MARK, after_spacing, count_words, word_level
from mt.errors import DataError
from mt.special_tokens import BOS, EOS, PAD, SPECIAL_TOKENS, UNK

# A word, a number or other symbols, each with the space before it. No merge crosses these, so that no text
# becomes the single token <s> or <0x0A>, in which symbols are next to letters.
PIECES = pre_tokenizers.Split(Regex(r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^ \p{L}\p{M}\p{N}]+"), "isolated")

# If the text itself contains that mark, or the escape character, they are escaped.
ESCAPED = {ESCAPE: ESCAPE + "a", SPACE_MARK: ESCAPE + "b"}
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))

# More than any file of a tokenizer holds. The library reserves room for this many in advance.
_MOST_ENTRIES = 10_000_000
TO_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
_SHOW_SPACES = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="never", split=False)
# PAD, BOS and EOS, but not UNK.
_NO_SPECIAL_TOKENS = decoders.Replace(Regex(rf"\A(?:{PAD}|{BOS}|{EOS})\z"), "")
_NO_FIRST_SPACE = decoders.Strip(" ", left=1, right=0)
_ESCAPE = [normalizers.Replace(character, escaped) for character, escaped in ESCAPED.items()]
_UNESCAPE = [decoders.Replace(escaped, mark) for mark, escaped in reversed(ESCAPED.items())]
_SPACES = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
_METASPACE_DECODER = decoders.Sequence([_NO_SPECIAL_TOKENS, *_SPACES, *_UNESCAPE, _NO_FIRST_SPACE])


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a vocabulary of the most frequent words, subwords or characters; this is deterministic."""
    makers = {
        "word": _word_tokenizer,
        "char": character_level,
        "bpe": byte_level_bpe,
        "bpe_metaspace": metaspace_bpe,
    }
    return Tokenizer(makers[config.kind](texts, config))


def extended(tokenizer: Tokenizer, texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Add the frequent words that it lacks, or characters if it has subwords, if ``extend`` is set."""
    if not config.extend:
        return tokenizer
    known, entries = tokenizer.library.get_vocab(), []
    if config.kind == "word":
        entries = _frequent(count_words(texts, lowercase=config.lowercase), config)
    elif BYTES[0] in known:
        entries = _frequent_characters(texts, config)
    return tokenizer.with_entries([entry for entry in entries if entry not in known], is_new=False)


def old_pieces(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """What the old tokenizer has written instead of each entry that the new one adds: bytes, or nothing."""
    ids = old.library.get_vocab()
    if BYTES[0] not in ids:
        return [[] for _ in range(old.size, new.size)]
    pieces = []
    for token_id in range(old.size, new.size):
        entry = str(new.library.id_to_token(token_id))
        text = "" if entry in new.reserved else entry
        pieces.append([ids[BYTES[byte]] for byte in text.encode()])
    return pieces


def _word_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> tokenizers.Tokenizer:
    words = _frequent(count_words(texts, lowercase=config.lowercase), config)
    if not words:
        limit = f"{config.min_frequency} times or more (tokenizer.min_frequency)"
        raise DataError(f"the training text has no word that occurs {limit}: lower it, or give more text.")
    entries = [*SPECIAL_TOKENS, *words][: config.max_size]
    return word_level({entry: i for i, entry in enumerate(entries)}, lowercase=config.lowercase)


def byte_level_bpe(texts: Iterable[str], config: TokenizerConfig) -> tokenizers.Tokenizer:
    """BPE on the bytes of the text (Radford et al. 2019), each written as a printable character."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNK))
    tokenizer.normalizer = after_spacing([normalizers.Prepend(" ")], lowercase=config.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([PIECES, TO_BYTES])
    tokenizer.decoder = decoders.Sequence([_NO_SPECIAL_TOKENS, decoders.ByteLevel(), _NO_FIRST_SPACE])
    return _trained(tokenizer, texts, config, SPECIAL_TOKENS, pre_tokenizers.ByteLevel.alphabet())


def metaspace_bpe(texts: Iterable[str], config: TokenizerConfig) -> tokenizers.Tokenizer:
    """BPE on characters and a visible mark for the space (Kudo and Richardson 2018); rare ones are bytes."""
    characters = _alphabet(texts, config)
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token=UNK))
    tokenizer.normalizer = after_spacing([*_ESCAPE, normalizers.Prepend(" ")], lowercase=config.lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([PIECES, _SHOW_SPACES])
    tokenizer.decoder = _METASPACE_DECODER
    return _trained(tokenizer, texts, config, [*SPECIAL_TOKENS, *BYTES], characters)


def character_level(texts: Iterable[str], config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Each character, including the space, is a token; rare ones are bytes."""
    entries = [*SPECIAL_TOKENS, *BYTES, *_alphabet(texts, config)]
    # BPE without merges, because the library's other models have no byte fallback.
    model = models.BPE({entry: i for i, entry in enumerate(entries)}, [], byte_fallback=True, unk_token=UNK)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = after_spacing(_ESCAPE, lowercase=config.lowercase)
    tokenizer.pre_tokenizer = _SHOW_SPACES
    tokenizer.decoder = _METASPACE_DECODER
    return tokenizer


def _alphabet(texts: Iterable[str], config: TokenizerConfig) -> list[str]:
    """The mark for the space, and as many characters as fit, the most frequent first."""
    characters = [SPACE_MARK, *_frequent_characters(texts, config)]
    return characters[: config.max_size - len(SPECIAL_TOKENS) - len(BYTES)]


def _frequent_characters(texts: Iterable[str], config: TokenizerConfig) -> list[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    normalize = after_spacing(_ESCAPE, lowercase=config.lowercase).normalize_str
    frequencies: Counter[str] = Counter()
    for character, count in counts.items():
        for written in normalize(character):
            frequencies[written] += count
    return _frequent(frequencies, config)


def _frequent(frequencies: Counter[str], config: TokenizerConfig) -> list[str]:
    """Those that occur ``min_frequency`` times or more, by descending frequency, then by characters."""
    kept = [entry for entry, frequency in frequencies.items() if frequency >= config.min_frequency]
    return sorted(kept, key=lambda entry: (-frequencies[entry], entry))


def _trained(
    tokenizer: tokenizers.Tokenizer,
    texts: Iterable[str],
    config: TokenizerConfig,
    special_tokens: Sequence[str],
    alphabet: Sequence[str],
) -> tokenizers.Tokenizer:
    """The tokenizer with the vocabulary and the merges that are learnt from ``texts``."""
    trainer = trainers.BpeTrainer(
        vocab_size=min(config.max_size, _MOST_ENTRIES),
        min_frequency=config.min_frequency,
        special_tokens=list(special_tokens),
        initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    errors: list[Exception] = []

    # In a thread, because no signal is answered while the library works in this one.
    def train() -> None:
        try:
            tokenizer.train_from_iterator(texts, trainer)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    # A copy, whose special tokens are plain entries, which the library does not search for in the text.
    copy = tokenizers.Tokenizer(tokenizer.model)
    copy.normalizer, copy.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    copy.decoder = tokenizer.decoder
    return copy
