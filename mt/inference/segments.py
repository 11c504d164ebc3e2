"""Lines to the pieces that search translates, each perhaps with a beginning, and what it finds to text."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import LinesError
from mt.inference.source_reader import SourceReader, SourceToken
from mt.search.hypothesis import Hypothesis
from mt.wording import counted


@dataclass(frozen=True)
class Translation:
    """What a line may be translated by."""

    text: str
    log_prob: float
    """Of its tokens and EOS together; the natural logarithm."""
    score: float
    """By which it is ranked: with a beam, what `normalised_score` makes of the log-probability."""


@dataclass(frozen=True)
class Piece:
    """A line, or a sentence of a long line."""

    place: int
    """Of the line among those that are translated together."""
    line: int
    """The number of the line, for people and for the draws of sampling."""
    number: int
    """As which of the pieces of its line it comes."""
    tokens: Sequence[SourceToken]
    prefix: Sequence[SourceToken]
    """How its translation is to begin; what is unknown there is written as it is given."""


def read_pieces(
    texts: Sequence[str],
    prefixes: Sequence[str],
    reader: SourceReader,
    prefix_reader: SourceReader,
    *,
    max_length: int,
    most_written: int,
    first_line: int,
    refuse_long: bool,
) -> list[Piece]:
    """What is to be translated for each line; the first piece begins as the line's prefix says.

    Args:
        texts: The lines.
        prefixes: For each line how its translation begins; empty lets all begin as they will.
        reader: Of the source language.
        prefix_reader: Of the target language.
        max_length: The most tokens that the model reads, EOS included.
        most_written: The most tokens of a translation; a beginning has fewer.
        first_line: The number of the first line, for messages.
        refuse_long: Whether a sentence that is too long is an error; if not, it is cut.

    Raises:
        LinesError: If sentences are too long and ``refuse_long``, or beginnings are too long.
    """
    beginnings = prefix_reader.read_batch(prefixes) if any(prefixes) else [[]] * len(texts)
    too_long = {
        line: f"line {line} is to begin with {counted(len(beginning), 'token')}, and a translation "
        f"may have at most {most_written}. Give a shorter beginning."
        for line, beginning in enumerate(beginnings, first_line)
        if len(beginning) >= most_written
    }
    if too_long:
        raise LinesError(too_long)
    pieces: list[Piece] = []
    for place, tokens in pieces_of(
        texts, reader.read_batch, max_length=max_length, first_line=first_line, refuse_long=refuse_long
    ):
        number = pieces[-1].number + 1 if pieces and pieces[-1].place == place else 0
        pieces.append(Piece(place, first_line + place, number, tokens, [] if number else beginnings[place]))
    return pieces


def refuse_several_pieces(pieces: Sequence[Piece]) -> None:
    """Complain of lines that are translated in parts, where the n best of each are asked for.

    Raises:
        LinesError: If there are any.
    """
    reasons = {
        piece.line: f"line {piece.line} is too long for this model to read at once, and has no n best. Put "
        "its sentences on lines of their own."
        for piece in pieces
        if piece.number > 0
    }
    if reasons:
        raise LinesError(reasons)


def write_piece(piece: Piece, hypothesis: Hypothesis, score: float, tgt_tokenizer: Tokenizer) -> Translation:
    """The text of what search found, with the words that are carried over."""
    # The unknown words of the beginning come first; what they were taken to stand for, be it the end mark,
    # does not matter.
    given = [token.copy for token in piece.prefix if token.copy is not None]
    carried = [piece.tokens[position].copy or "" for position in hypothesis.copied[len(given) :]]
    return Translation(tgt_tokenizer.decode(hypothesis.ids, [*given, *carried]), hypothesis.score, score)


def joined(parts: Sequence[Translation]) -> Translation:
    """The parts of a long line one after the other; of none an empty one, which is certain."""
    return Translation(
        " ".join(part.text for part in parts),
        sum(part.log_prob for part in parts),
        sum(part.score for part in parts),
    )


def count_lines_done(
    num_lines: int, pieces: Sequence[Piece], advance: Callable[[int], object]
) -> Callable[[Sequence[Piece]], None]:
    """What to call after each batch; it calls ``advance`` with the number of lines then complete."""
    left = Counter(piece.place for piece in pieces)
    advance(num_lines - len(left))

    def count(batch: Sequence[Piece]) -> None:
        left.subtract(piece.place for piece in batch)
        advance(sum(not left[place] for place in {piece.place for piece in batch}))

    return count


TokenT = TypeVar("TokenT")

# After a stop and its closing quotes or brackets; Chinese and Japanese stops need no space behind them.
_SENTENCE_END = re.compile(r"""(?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+|(?<=[。！？])""")


def split_sentences(text: str) -> list[str]:
    """The sentences of a line, by their stops; a line without any is one sentence."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def pieces_of(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], list[list[TokenT]]],
    *,
    max_length: int,
    first_line: int,
    refuse_long: bool,
) -> list[tuple[int, Sequence[TokenT]]]:
    """What is to be translated for each line: nothing for an empty one, several pieces for a long one.

    Args:
        texts: The lines.
        encode: Lines to tokens, without end mark.
        max_length: The most tokens the model may read, the end mark included.
        first_line: The number of the first line, for messages.
        refuse_long: Whether a *sentence* that is too long is an error, as a translator wants it; if not, it
            is cut into stretches, as an evaluation needs it, which must score every line.

    Returns:
        Pairs of an index into ``texts`` and tokens, in order.

    Raises:
        LinesError: If sentences are too long and ``refuse_long``.
    """
    pieces: list[tuple[int, Sequence[TokenT]]] = []
    reasons: dict[int, str] = {}
    for index, tokens in enumerate(encode(texts)):
        if len(tokens) < max_length:
            pieces += [(index, tokens)] if tokens else []
            continue
        for sentence in encode(split_sentences(texts[index])):
            if refuse_long and len(sentence) >= max_length:
                line = first_line + index
                reasons.setdefault(
                    line,
                    f"line {line} has a sentence of {len(sentence) + 1} tokens, and this model "
                    f"reads at most {max_length} (data.max_length when it was trained). "
                    "Break it into shorter sentences.",
                )
            width = max_length - 1
            pieces += [(index, sentence[at : at + width]) for at in range(0, len(sentence), width)]
    if reasons:
        raise LinesError(reasons)
    return pieces
