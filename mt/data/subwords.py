"""Characters and byte-pair encoding: no word is unknown, what the vocabulary lacks is spelt in bytes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from mt.data.word_level import ESCAPE, normal_spacing
from mt.special_tokens import BOS, EOS, PAD, SPECIAL_TOKENS, UNK

# A word with the blank before it, or a number, or signs. No merge goes across, so that no text becomes the
# one token <s>, or <0x0A>: in both, signs stand beside letters.
PIECES = Regex(r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^ \p{L}\p{M}\p{N}]+")

BLANK = "▁"
# The printable character that byte-level BPE has for the byte of the blank.
BLANK_BYTE = "Ġ"
# What the text itself holds of that mark, and of the escape, is escaped.
ESCAPED = {ESCAPE: ESCAPE + "a", BLANK: ESCAPE + "b"}
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def byte_level_bpe(texts: Iterable[str], *, max_size: int, min_frequency: int, lowercase: bool) -> Tokenizer:
    """BPE on the bytes of the text (Radford et al. 2019), each written as a printable character.

    Raises:
        UnicodeEncodeError: If a text holds half of a surrogate pair.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNK))
    tokenizer.normalizer = _normalizer(lowercase=lowercase, more=[normalizers.Prepend(" ")])
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(PIECES, "isolated"), to_bytes])
    trainer = trainers.BpeTrainer(
        vocab_size=max_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_whole_characters(texts), trainer)
    tokenizer.decoder = decoders.Sequence([_no_marks_of_the_end(), decoders.ByteLevel(), _no_first_blank()])
    return _without_added_tokens(tokenizer)


def metaspace_bpe(texts: Iterable[str], *, max_size: int, min_frequency: int, lowercase: bool) -> Tokenizer:
    """BPE on characters, with a visible mark for the blank (Kudo and Richardson 2018); rare ones are bytes.

    Args:
        texts: Lines, which are gone through twice.
        max_size: The largest number of entries.
        min_frequency: A rarer character is spelt in bytes, a rarer pair is not merged.
        lowercase: Whether to lower-case the text first.

    Raises:
        UnicodeEncodeError: If a text holds half of a surrogate pair.
    """
    characters = _frequent_characters(texts, max_size, min_frequency, lowercase=lowercase)
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token=UNK))
    tokenizer.normalizer = _normalizer(lowercase=lowercase, more=[*_escape(), normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(PIECES, "isolated"), _show_blanks()]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=max_size,
        min_frequency=min_frequency,
        special_tokens=[*SPECIAL_TOKENS, *BYTES],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.decoder = _metaspace_decoder()
    return _without_added_tokens(tokenizer)


def character_level(texts: Iterable[str], *, max_size: int, min_frequency: int, lowercase: bool) -> Tokenizer:
    """Each character a token, the blank too; rare ones are bytes.

    Raises:
        UnicodeEncodeError: If a text holds half of a surrogate pair.
    """
    characters = _frequent_characters(texts, max_size, min_frequency, lowercase=lowercase)
    entries = [*SPECIAL_TOKENS, *BYTES, *characters]
    # BPE that has nothing to merge: the library's other models know no bytes.
    model = models.BPE({entry: i for i, entry in enumerate(entries)}, [], byte_fallback=True, unk_token=UNK)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = _normalizer(lowercase=lowercase, more=_escape())
    tokenizer.pre_tokenizer = _show_blanks()
    tokenizer.decoder = _metaspace_decoder()
    return tokenizer


def _frequent_characters(
    texts: Iterable[str], max_size: int, min_frequency: int, *, lowercase: bool
) -> list[str]:
    """The blank's mark, and the characters for which there is room, most frequent first."""
    counts: Counter[str] = Counter()
    for text in _whole_characters(texts):
        counts.update(text)
    normalize = _normalizer(lowercase=lowercase, more=_escape()).normalize_str
    frequencies: Counter[str] = Counter()
    for character, count in counts.items():
        for written in normalize(character):
            frequencies[written] += count
    frequent = [written for written, count in frequencies.items() if count >= min_frequency]
    frequent.sort(key=lambda written: (-frequencies[written], written))
    return [BLANK, *frequent][: max_size - len(SPECIAL_TOKENS) - len(BYTES)]


def _whole_characters(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        text.encode()
        yield text


def _normalizer(*, lowercase: bool, more: Sequence[normalizers.Normalizer]) -> normalizers.Normalizer:
    lower = [normalizers.Lowercase()] if lowercase else []
    return normalizers.Sequence([*lower, *normal_spacing(), *more])


def _escape() -> list[normalizers.Normalizer]:
    return [normalizers.Replace(character, escaped) for character, escaped in ESCAPED.items()]


def _show_blanks() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Metaspace(BLANK, prepend_scheme="never", split=False)


def _metaspace_decoder() -> decoders.Decoder:
    return decoders.Sequence(
        [
            _no_marks_of_the_end(),
            decoders.Replace(BLANK, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            *(decoders.Replace(escaped, mark) for mark, escaped in reversed(ESCAPED.items())),
            _no_first_blank(),
        ]
    )


def _no_marks_of_the_end() -> decoders.Decoder:
    """Drop PAD, BOS and EOS; UNK is shown."""
    return decoders.Replace(Regex(rf"\A(?:{PAD}|{BOS}|{EOS})\z"), "")


def _no_first_blank() -> decoders.Decoder:
    return decoders.Strip(" ", left=1, right=0)


def _without_added_tokens(trained: Tokenizer) -> Tokenizer:
    """The same with the special tokens as plain entries, for which the library does not search the text."""
    tokenizer = Tokenizer(trained.model)
    tokenizer.normalizer = trained.normalizer
    tokenizer.pre_tokenizer = trained.pre_tokenizer
    tokenizer.decoder = trained.decoder
    return tokenizer
