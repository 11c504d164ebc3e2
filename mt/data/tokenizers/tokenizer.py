"""Tokenizers of all kinds: text to ids and back."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import tokenizers
from tokenizers import models, normalizers

from mt.data.text_form import TextForm
from mt.data.tokenizers.word_level import PLACEHOLDER, SPACE_BYTE, SPACE_MARK
from mt.errors import DataError
from mt.files import read_bytes, write_atomically
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS, UNK, UNK_ID

# A million words take 30 million bytes; the limit protects against files that would fill the memory.
MAX_BYTES = 2**28

# Names of what stands for no text besides our special tokens: a language to write, a tag.
_RESERVED = re.compile(r'"(<(?:to|tag):[^<>\s"]+>)"')


def direction_name(language: str) -> str:
    """The name of the id with which a source sentence begins that is to be translated into this language."""
    return f"<to:{language}>"


def tag_name(tag: str) -> str:
    """The name of the id with which a source sentence of this tag begins."""
    return f"<tag:{tag}>"


class Tokenizer:
    """Text to ids and back, as defined by a tokenizer.json; neither direction adds or needs BOS and EOS.

    Whatever the kind, no text is encoded to PAD, BOS, EOS or a reserved id, and decoded text is one line.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, reserved: dict[str, int] | None = None) -> None:
        """Wrap a tokenizer of the library, with its ids that stand for no text."""
        # Text that looks like a declared special token stays text. The tokenizer.json does not store this.
        tokenizer.encode_special_tokens = True
        self.library = tokenizer
        self._set_normalizer(tokenizer.normalizer)
        self.reserved = reserved or {}
        """The ids that stand for no text, such as that of ``<to:de>``, by their names (`with_entries`)."""
        self.not_text = frozenset({PAD_ID, BOS_ID, EOS_ID, *self.reserved.values()})
        """These, and the ids of PAD, BOS and EOS."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        try:
            tokenizer = cls.from_json(read_tokenizer_file(path))
        except ValueError as error:
            raise DataError(f"the tokenizer {path} is damaged ({error}): restore a copy of it.") from error
        if tokenizer.tokens(range(len(SPECIAL_TOKENS))) != [*SPECIAL_TOKENS]:
            raise DataError(f"{path} is not a tokenizer of mt: it does not begin with {SPECIAL_TOKENS}.")
        return tokenizer

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Create a tokenizer from the content of a tokenizer.json."""
        try:
            tokenizer = tokenizers.Tokenizer.from_str(content.decode())
            # All this would fail later, in the library or in the model, when text is encoded.
            if tokenizer.truncation or tokenizer.padding or getattr(tokenizer.model, "dropout", None):
                raise ValueError("it truncates or pads texts, or drops merges at random")
            ids = tokenizer.get_vocab()
            if sorted(ids.values()) != list(range(tokenizer.get_vocab_size())):
                raise ValueError("its ids are not 0, 1, 2 and so on without a gap")
            tokenizer.encode("word \N{SNOWMAN} \U00020000", add_special_tokens=False)
        # The library raises a bare Exception for anything that is wrong with a file, or a Rust panic.
        except BaseException as error:
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise ValueError(str(error)) from error
            raise
        reserved = [name for name in _RESERVED.findall(content.decode()) if name in ids]
        reserved.sort(key=ids.__getitem__)
        return cls(tokenizer, {name: ids[name] for name in reserved})

    def with_entries(self, names: Sequence[str], *, is_new: bool) -> Self:
        """This one with more entries: behind the special tokens if it is new, else behind all others."""
        content = json.loads(self.to_json())
        model = content["model"]
        first = len(SPECIAL_TOKENS) if is_new else self.size
        if isinstance(model["vocab"], list):
            least = min(score for _, score in model["vocab"])
            model["vocab"][first:first] = [[name, least] for name in names]
        else:
            vocabulary = {}
            for entry, token_id in model["vocab"].items():
                vocabulary[entry] = token_id + len(names) if token_id >= first else token_id
            for token_id, name in enumerate(names, start=first):
                vocabulary[name] = token_id
            model["vocab"] = vocabulary
        for token in content["added_tokens"]:
            if token["id"] >= first:
                token["id"] += len(names)
        return type(self).from_json(json.dumps(content, ensure_ascii=False).encode())

    def save(self, path: Path) -> None:
        """Write the tokenizer.json, which any program with the `tokenizers` library can use."""
        write_atomically(path, self.to_json())

    def to_json(self) -> str:
        """The text that `save` writes; the same for equal tokenizers."""
        rest, self.library.normalizer = self.library.normalizer, self._normalizer
        content = self.library.to_str(pretty=True)
        self.library.normalizer = rest
        return content

    @property
    def size(self) -> int:
        """Entries in the vocabulary, including special tokens; all ids are smaller than this."""
        return self.library.get_vocab_size()

    def beginning(self, language: str, tag: str | None = None) -> list[int]:
        """The ids with which a source begins: of the language to translate into, and of its tag, if any."""
        names = [direction_name(language)]
        if tag:
            names.append(tag_name(tag))
        return [self.reserved[name] for name in names if name in self.reserved]

    @property
    def has_directions(self) -> bool:
        """Whether it has ids of languages to translate into."""
        return any(name.startswith(direction_name("")[:-1]) for name in self.reserved)

    def merges(self) -> list[tuple[int, int, int]]:
        """The ids of the left, right and merged token of each merge of a BPE tokenizer, in order of rank."""
        model = json.loads(self.to_json())["model"]
        ids = model["vocab"]
        return [(ids[left], ids[right], ids[left + right]) for left, right in model["merges"]]

    def begin_with(self, steps: Sequence[normalizers.Normalizer]) -> None:
        """From now on normalise all text by these steps first; `save` stores this."""
        then = self._normalizer
        if steps:
            self._set_normalizer(normalizers.Sequence([*steps] if then is None else [*steps, then]))

    def _set_normalizer(self, normalizer: normalizers.Normalizer | None) -> None:
        self._normalizer = normalizer
        # Most text has this form already, on which the library would spend half of its time.
        self.form, self.library.normalizer = TextForm.in_front_of(normalizer)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with UNK for words that are not in the vocabulary."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text; much faster than one by one."""
        _check_no_surrogates(texts)
        texts = self.form.rewrite(texts)
        encodings = self.library.encode_batch_fast(texts, add_special_tokens=False)
        return [self._text_only(encoding.ids) for encoding in encodings]

    def encode_with_words(self, text: str) -> tuple[list[int], list[str]]:
        """Ids as in `encode`, and for each id the part of the text, in the tokenizer's form, that it encodes.

        If one character takes several tokens, the first token has it and the others have an empty part.
        """
        _check_no_surrogates([text])
        [text] = self.form.rewrite([text])
        encoding = self.library.encode(text, add_special_tokens=False)
        words: list[str] = []
        end = 0
        # The library assigns what a normalizer drops, such as a byte order mark or an accent, to no token.
        next_starts = [*(start for start, _ in encoding.offsets), len(text)][1:]
        for (_, token_end), next_start in zip(encoding.offsets, next_starts, strict=True):
            # A spacing mark has the offsets of the preceding character, which already has a token.
            start, end = end, max(token_end, next_start, end)
            words.append(text[start:end].strip())
        return self._text_only(encoding.ids), words

    def decode(self, ids: Sequence[int], copies: Sequence[str] = ()) -> str:
        """The text of ids, without those of no text; each UNK is the next of ``copies``, or ``<unk>``."""
        text_ids = [token_id for token_id in ids if token_id not in self.not_text]
        if not copies:
            return normalise_spacing(self.library.decode(text_ids, skip_special_tokens=False))
        tokens: list[str] = []
        for token in self.tokens(text_ids):
            tokens += self._word_of_its_own if token == UNK else [token]
        # An external tokenizer may have no decoder.
        decoder = self.library.decoder
        text = " ".join(tokens) if decoder is None else decoder.decode(tokens)
        # Copies are put in last, so that the decoder's rules on spaces and marks do not change them.
        written = iter(copies)
        return normalise_spacing(re.sub(PLACEHOLDER, lambda _: next(written, UNK), text))

    @cached_property
    def lengths(self) -> list[int]:
        """How many characters each entry of the vocabulary stands for, without spaces."""
        texts = self.library.decode_batch(
            [[token_id] for token_id in range(self.size)], skip_special_tokens=False
        )
        lengths = [sum(map(len, text.split())) for text in texts]
        for token_id in self.not_text:
            lengths[token_id] = 0
        return lengths

    @property
    def has_words(self) -> bool:
        """Whether its entries are words, of which those that it lacks are unknown."""
        return isinstance(self.library.model, models.WordLevel)

    @cached_property
    def spaces(self) -> frozenset[int]:
        """The ids that are nothing but the space before a word; none if the entries are words."""
        ids = () if self.has_words else map(self.library.token_to_id, (SPACE_BYTE, SPACE_MARK))
        return frozenset(token_id for token_id in ids if token_id is not None)

    @property
    def _word_of_its_own(self) -> list[str]:
        """The tokens of a copy: with a space before it, unless the decoder has spaces between all tokens."""
        return [*self.tokens([*self.spaces][:1]), PLACEHOLDER] if self.library.decoder else [PLACEHOLDER]

    def _text_only(self, ids: list[int]) -> list[int]:
        """Replace with UNK what is no text, which only an external tokenizer can make of text."""
        if self.not_text.isdisjoint(ids):
            return ids
        return [UNK_ID if token_id in self.not_text else token_id for token_id in ids]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary entry of each id, including spacing marks."""
        return [self.library.id_to_token(token_id) or UNK for token_id in ids]


def normalise_spacing(text: str) -> str:
    """Single spaces instead of all white space, none at the ends: the result of `decode(encode(text))`."""
    return " ".join(text.split())


def read_tokenizer_file(path: Path) -> bytes:
    """The content of a tokenizer.json of a reasonable size."""
    try:
        return read_bytes(path, max_bytes=MAX_BYTES)
    except OSError as error:
        raise DataError(f"cannot read the tokenizer {path}: {error.strerror or error}.") from error


def _check_no_surrogates(texts: Iterable[str]) -> None:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        around = error.object[max(0, error.start - 20) : error.end + 20]
        raise DataError(f"the text {around!r} has a lone surrogate: save it as UTF-8 again.") from error
