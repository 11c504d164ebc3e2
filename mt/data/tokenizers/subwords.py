"""Characters and byte-pair encoding: no word is unknown, because rare characters become bytes."""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mt.config.data import TokenizerConfig
from mt.data.tokenizers.word_level import ESCAPE, SPACE_MARK, normal_spacing
from mt.special_tokens import BOS, EOS, PAD, SPECIAL_TOKENS, UNK

# A word, a number or other symbols, each with the space before it. No merge crosses these, so that no text
# becomes the single token <s> or <0x0A>, in which symbols are next to letters.
PIECES = Regex(r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^ \p{L}\p{M}\p{N}]+")

# If the text itself contains that mark, or the escape character, they are escaped.
ESCAPED = {ESCAPE: ESCAPE + "a", SPACE_MARK: ESCAPE + "b"}
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))

# More than any file of a tokenizer holds. The library reserves room for this many in advance.
_MOST_ENTRIES = 10_000_000
_TO_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
_SHOW_SPACES = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme="never", split=False)
# PAD, BOS and EOS, but not UNK.
_NO_SPECIAL_TOKENS = decoders.Replace(Regex(rf"\A(?:{PAD}|{BOS}|{EOS})\z"), "")
_NO_FIRST_SPACE = decoders.Strip(" ", left=1, right=0)
_ESCAPE = [normalizers.Replace(character, escaped) for character, escaped in ESCAPED.items()]
_UNESCAPE = [decoders.Replace(escaped, mark) for mark, escaped in reversed(ESCAPED.items())]
_SPACES = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
_METASPACE_DECODER = decoders.Sequence([_NO_SPECIAL_TOKENS, *_SPACES, *_UNESCAPE, _NO_FIRST_SPACE])
# How byte-level BPE writes the bytes 80 to BF, which continue a character: here each is the second of two.
_CONTINUING = frozenset(_TO_BYTES.pre_tokenize_str("".join(map(chr, range(0x80, 0xC0))))[0][0][1::2])


def byte_level_bpe(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """BPE on the bytes of the text (Radford et al. 2019), each written as a printable character."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK))
    tokenizer.normalizer = _normalizer(config, [normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(PIECES, "isolated"), _TO_BYTES])
    _train(tokenizer, texts, config, SPECIAL_TOKENS, pre_tokenizers.ByteLevel.alphabet())
    tokenizer.decoder = decoders.Sequence([_NO_SPECIAL_TOKENS, decoders.ByteLevel(), _NO_FIRST_SPACE])
    return _without_added_tokens(tokenizer)


def metaspace_bpe(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """BPE on characters and a visible mark for the space (Kudo and Richardson 2018); rare ones are bytes."""
    characters = _alphabet(texts, config)
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token=UNK))
    tokenizer.normalizer = _normalizer(config, [*_ESCAPE, normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(PIECES, "isolated"), _SHOW_SPACES]
    )
    _train(tokenizer, texts, config, [*SPECIAL_TOKENS, *BYTES], characters)
    tokenizer.decoder = _METASPACE_DECODER
    return _without_added_tokens(tokenizer)


def character_level(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Each character, including the space, is a token; rare ones are bytes."""
    characters = _alphabet(texts, config)
    entries = [*SPECIAL_TOKENS, *BYTES, *characters]
    # BPE without merges, because the library's other models have no byte fallback.
    model = models.BPE({entry: i for i, entry in enumerate(entries)}, [], byte_fallback=True, unk_token=UNK)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = _normalizer(config, _ESCAPE)
    tokenizer.pre_tokenizer = _SHOW_SPACES
    tokenizer.decoder = _METASPACE_DECODER
    return tokenizer


def begin_pieces(tokenizer: Tokenizer, symbols: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each base symbol ``(N,)`` of whole sentences begins one of `PIECES`."""
    mark_id = tokenizer.token_to_id(SPACE_MARK)
    if mark_id is not None:
        # Symbols are characters, and no merge joins letters to others: only words need to be kept apart.
        begins: npt.NDArray[np.bool_] = symbols == mark_id
        return begins
    # A letter and a punctuation mark may begin with the same byte, which merges of letters would then take.
    ids, places = np.unique(symbols, return_inverse=True)
    names = [tokenizer.id_to_token(int(token_id)) for token_id in ids]
    text = decoders.ByteLevel().decode([names[place] for place in places])
    begins_character = np.array([name not in _CONTINUING for name in names], dtype=bool)[places]
    pieces = pre_tokenizers.Split(PIECES, "isolated").pre_tokenize_str(text)
    starts = np.array([start for _, (start, _) in pieces], dtype=np.int64)
    begins = np.zeros(len(symbols), dtype=bool)
    begins[np.flatnonzero(begins_character)[starts]] = True
    return begins


def _alphabet(texts: Iterable[str], config: TokenizerConfig) -> list[str]:
    """The mark for the space, and as many characters as fit, the most frequent first."""
    characters = [SPACE_MARK, *frequent_characters(texts, config)]
    return characters[: config.max_size - len(SPECIAL_TOKENS) - len(BYTES)]


def frequent_characters(texts: Iterable[str], config: TokenizerConfig) -> list[str]:
    """The characters that occur ``min_frequency`` times or more, the most frequent first."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    normalize = _normalizer(config, _ESCAPE).normalize_str
    frequencies: Counter[str] = Counter()
    for character, count in counts.items():
        for written in normalize(character):
            frequencies[written] += count
    frequent = [written for written, count in frequencies.items() if count >= config.min_frequency]
    return sorted(frequent, key=lambda written: (-frequencies[written], written))


def _train(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    config: TokenizerConfig,
    special_tokens: Sequence[str],
    alphabet: Sequence[str],
) -> None:
    """Learn in a thread, because no signal is answered while the library works in this one."""
    trainer = trainers.BpeTrainer(
        vocab_size=min(config.max_size, _MOST_ENTRIES),
        min_frequency=config.min_frequency,
        special_tokens=list(special_tokens),
        initial_alphabet=list(alphabet),
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    errors: list[Exception] = []

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


def _normalizer(config: TokenizerConfig, more: Sequence[normalizers.Normalizer]) -> normalizers.Normalizer:
    lower = [normalizers.Lowercase()] if config.lowercase else []
    return normalizers.Sequence([*lower, *normal_spacing(), *more])


def _without_added_tokens(trained: Tokenizer) -> Tokenizer:
    """A copy with the special tokens as plain entries, which the library does not search for in the text."""
    tokenizer = Tokenizer(trained.model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = trained.normalizer, trained.pre_tokenizer
    tokenizer.decoder = trained.decoder
    return tokenizer
