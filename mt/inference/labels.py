"""Tokens as people read them, and which words they align: without torch."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mt.data.tokenizers.tokenizer import normalise_spacing
from mt.data.tokenizers.word_level import SPACE_BYTE, SPACE_MARK
from mt.inference.engines import Attention
from mt.inference.source_reader import SourceReader
from mt.special_tokens import EOS, UNK_ID

Words = Sequence[int | None]
"""The word of each token; None for one that is no part of any."""
WordAttention = Sequence[tuple[Words, Words, Attention]]
"""For each part of a text: the words of its tokens, those of its translation, and how these attend to it."""


@dataclass(frozen=True)
class Token:
    """A token as it is labelled in a picture."""

    label: str
    """The text that it represents; its vocabulary entry if it has no readable text of its own."""
    word: int | None
    """The word of the sentence that it is part of; None for BOS, EOS and tokens that are only a space."""
    is_unknown: bool = False
    """Whether the model reads or writes it as UNK."""


@dataclass(frozen=True)
class Labelled:
    """One side of a pair: ids without BOS and EOS, their tokens and that of EOS, and the text."""

    ids: Sequence[int]
    tokens: Sequence[Token]
    text: str
    num_hidden: int = 0
    """How many of the first tokens are no text, but say into which language it is translated."""


def label_read(
    reader: SourceReader, text: str, most: int | None = None, split: Callable[[str], list[str]] = str.split
) -> Labelled:
    """Label the tokens of a text, or the first of them, with the part of it that each represents.

    ``split`` gives the words, which are the text without its spaces.
    """
    [text] = reader.tokenizer.form.rewrite([text])
    read = [*reader.direction, *reader.read(text)]
    ids = [token.id for token in read]
    # Concatenated, the parts are the text without its spaces.
    word_of_character = [number for number, word in enumerate(split(text)) for _ in word]
    position = 0
    tokens: list[Token] = []
    for token, entry in zip(read, reader.tokenizer.tokens(ids), strict=True):
        if token.text:
            word: int | None = word_of_character[position]
        else:
            # A space is not part of a word; any other token without text is a further byte of a character.
            word = tokens[-1].word if tokens and entry.strip(SPACE_MARK + SPACE_BYTE) else None
        tokens.append(Token(token.text or entry, word, token.id == UNK_ID))
        position += len("".join(token.text.split()))
    labels = [*tokens[:most], Token(EOS, None)]
    return Labelled(ids[:most], labels, normalise_spacing(text), len(reader.direction))


def aligned_words(
    src_tokens: Sequence[Token], tgt_tokens: Sequence[Token], weights: Attention
) -> list[tuple[int, int]]:
    """Link each target word to the source word that it attends to most, by the sum of its tokens' weights.

    The result is pairs of a source and a target word, counted from 0, in the order of the target.
    """
    sums: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for target, row in zip(tgt_tokens, weights, strict=False):
        for source, weight in zip(src_tokens, row, strict=False):
            if target.word is not None and source.word is not None:
                sums[target.word][source.word] += weight
    pairs = []
    for word, weight_of in sorted(sums.items()):
        # Of equal sums, the first.
        best = max(weight_of, key=weight_of.__getitem__)
        if weight_of[best] > 0:
            pairs.append((best, word))
    return pairs


def in_proportion(num_read: int, num_written: int) -> WordAttention:
    """Each word of a translation attends to the word at the same part of the length of the text."""
    return [([word * num_read // num_written], [word], [[1.0]]) for word in range(num_written)]


def words_of_tokens(lengths: Sequence[Sequence[int]], words: Sequence[str]) -> tuple[list[Words], bool]:
    """The word of each token of each part of a text, by the number of its characters.

    Also whether there are as many of these as in the words; if not, words are assigned in proportion.
    """
    word_of_character = [number for number, word in enumerate(words) for _ in word]
    num_characters = len(word_of_character)
    total = sum(map(sum, lengths))
    found: list[Words] = []
    position = 0
    for part in lengths:
        numbers: list[int | None] = []
        for length in part:
            is_read = length and num_characters
            numbers.append(word_of_character[position * num_characters // total] if is_read else None)
            position += length
        found.append(numbers)
    return found, total == num_characters
