"""Text to ids and back."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import tokenizers

from mt.atomic_files import write_text_atomically
from mt.config.tokenizer import TokenizerConfig
from mt.data.word_level import count_words, word_level
from mt.errors import DataError
from mt.special_tokens import SPECIAL_TOKENS, UNK

# A million words take 30 million; the limit is there for files made to fill the memory.
_MAX_BYTES = 2**28


class Tokenizer:
    """Text to ids and back, as a tokenizer.json says. Neither way adds or needs BOS and EOS."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        # Text that looks like a declared special token stays text. The tokenizer.json does not keep this.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            DataError: If the file is missing, damaged, or not a tokenizer with our special tokens.
        """
        try:
            if path.exists() and not path.is_file():
                raise DataError(f"cannot read the tokenizer {path}: it is no file.")
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
            if len(content) > _MAX_BYTES:
                raise DataError(f"{path} is larger than {_MAX_BYTES:,} bytes, as no tokenizer of mt is.")
            tokenizer = tokenizers.Tokenizer.from_str(content.decode())
            _check_usable(tokenizer)
        except OSError as error:
            raise DataError(f"cannot read the tokenizer {path}: {error.strerror or error}.") from error
        except DataError:
            raise
        # The library raises bare Exception for whatever is wrong with a file.
        except Exception as error:
            raise DataError(
                f"the tokenizer {path} is damaged ({error}). Restore it from a copy of the run or train anew."
            ) from error
        for token_id, token in enumerate(SPECIAL_TOKENS):
            if tokenizer.token_to_id(token) != token_id:
                raise DataError(
                    f"{path} is not a tokenizer of mt: the id of {token} is {tokenizer.token_to_id(token)}, "
                    f"and must be {token_id}."
                )
        return cls(tokenizer)

    def save(self, path: Path) -> None:
        """Write the tokenizer.json, which any program that knows the `tokenizers` library can use."""
        write_text_atomically(path, self.to_json())

    def to_json(self) -> str:
        """Return what `save` writes; equal tokenizers give equal text."""
        return self._tokenizer.to_str(pretty=True)

    @property
    def size(self) -> int:
        """Entries in the vocabulary, special tokens included; ids are smaller than this."""
        return self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Ids of a text, UNK for words that the vocabulary lacks.

        Raises:
            DataError: If the text is not valid Unicode.
        """
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; much faster than one by one.

        Raises:
            DataError: If a text is not valid Unicode.
        """
        try:
            for text in texts:
                text.encode()
        except UnicodeEncodeError as error:
            raise _not_unicode(error) from error
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids: PAD, BOS and EOS leave no trace, UNK is shown as it is called."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Each id's entry in the vocabulary, marks of spacing included."""
        return [self._tokenizer.id_to_token(token_id) or UNK for token_id in ids]


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Make a word-level vocabulary: the most frequent words first, equally frequent ones by their characters.

    Args:
        texts: Lines of the training split, of both languages where they are to share the vocabulary.
        config: Which words are too rare, and how many there may be.

    Raises:
        DataError: If a text is not valid Unicode, or no word is frequent enough.
    """
    try:
        frequencies = count_words(texts)
    except UnicodeEncodeError as error:
        raise _not_unicode(error) from error
    words = sorted(
        (word for word, frequency in frequencies.items() if frequency >= config.min_frequency),
        key=lambda word: (-frequencies[word], word),
    )
    if not words:
        raise DataError(
            f"the training text has no word that occurs {config.min_frequency} times or more "
            "(tokenizer.min_frequency). Lower it, or give more text."
        )
    vocabulary = [*SPECIAL_TOKENS, *words][: config.max_size]
    return Tokenizer(word_level({word: i for i, word in enumerate(vocabulary)}))


def normalise_spacing(text: str) -> str:
    """Single blanks for all white space, none at the ends: what `decode(encode(text))` gives back."""
    return " ".join(text.split())


def _check_usable(tokenizer: tokenizers.Tokenizer) -> None:
    """Find what the library would trip over later, or the model, when text is encoded.

    Raises:
        ValueError: If the tokenizer cuts or pads, or its ids have gaps.
        Exception: If it cannot encode; the library's own are of no narrower class.
    """
    if tokenizer.truncation is not None or tokenizer.padding is not None:
        raise ValueError("it cuts or pads its texts")
    if sorted(tokenizer.get_vocab().values()) != list(range(tokenizer.get_vocab_size())):
        raise ValueError("its ids are not 0, 1, 2 and so on without a gap")
    tokenizer.encode("word \N{SNOWMAN} \U00020000", add_special_tokens=False)


def _not_unicode(error: UnicodeEncodeError) -> DataError:
    around = error.object[max(0, error.start - 20) : error.end + 20]
    return DataError(
        f"the text {around!r} is not valid Unicode: half of a surrogate pair stands alone "
        f"(U+{ord(error.object[error.start]):04X}). Save the text as UTF-8 again."
    )
