"""Splits lines into the segments that search translates, and turns hypotheses back into text."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import TypeVar

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.unsegmented_scripts import join_sentences
from mt.display import counted
from mt.errors import LinesError
from mt.inference.source_reader import SourceReader, SourceToken
from mt.search.hypothesis import Hypothesis

TokenT = TypeVar("TokenT")

# A stop and its closing quotes or brackets, followed by a space except in Chinese, Japanese and Burmese.
_SENTENCE_END = re.compile(
    r"""[.!?…।॥۔؟։።](?:["'”’»)\]]|\s»){0,3}(?=\s)(?!\s+»)"""
    r"""|[。！？｡။][”’」』）】》]{0,3}(?![。！？｡။”’」』）】》])"""
)


@dataclass(frozen=True)
class Segment:
    """A line, or one sentence of a line that is too long for the model."""

    place: int
    """The index of its line among the lines that are translated together."""
    line: int
    """The number of its line, for messages and for the seed of sampling."""
    number: int
    """Its position among the segments of its line, counted from 0."""
    tokens: Sequence[SourceToken]
    prefix: Sequence[SourceToken]
    """The tokens that its translation starts with; unknown words among them are written as given."""

    def prefix_copies(self) -> list[int]:
        """For each token of the prefix, the position of the unknown source word that it copies, or -1.

        A word that the prefix has twice copies two source words, if there are as many.
        """
        left = {place: token.copy for place, token in enumerate(self.tokens) if token.copy is not None}
        copies = []
        for token in self.prefix:
            copies.append(next((place for place, copy in left.items() if copy == token.copy), -1))
            left.pop(copies[-1], None)
        return copies


@dataclass(frozen=True)
class Translation:
    """One translation of a line."""

    text: str
    log_prob: float
    """The total natural log-probability of its tokens and EOS, or the token that was cut off instead."""
    score: float
    """The score that ranks it: in beam search `normalised_score`, otherwise the log-probability."""
    parts: Sequence[tuple[Segment, Hypothesis]] = ()
    """The segments of the line, each with its hypothesis; none for an empty line."""


def read_segments(
    texts: Sequence[str],
    prefixes: Sequence[str],
    reader: SourceReader,
    prefix_reader: SourceReader,
    *,
    max_length: int,
    max_output_length: int,
    first_line: int,
    refuse_long: bool,
) -> list[Segment]:
    """Read lines as segments; the first segment of a line gets the line's prefix, if there are prefixes.

    Lengths are in tokens, including EOS. A sentence that is too long is an error if ``refuse_long``, else it
    is cut.
    """
    prefix_tokens = prefix_reader.read_batch(prefixes) if any(prefixes) else [[]] * len(texts)
    too_long = {
        line: f"line {line} has a prefix of {counted(len(prefix), 'token')}, but a translation may have at "
        f"most {max_output_length - 1}. Give a shorter prefix."
        for line, prefix in enumerate(prefix_tokens, first_line)
        if len(prefix) >= max_output_length
    }
    if too_long:
        raise LinesError(too_long)
    segments: list[Segment] = []
    for place, tokens in segments_of(
        texts, reader.read_batch, max_length=max_length, first_line=first_line, refuse_long=refuse_long
    ):
        number = segments[-1].number + 1 if segments and segments[-1].place == place else 0
        prefix = [] if number else prefix_tokens[place]
        segments.append(Segment(place, first_line + place, number, tokens, prefix))
    return segments


def segments_of(
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], list[list[TokenT]]],
    *,
    max_length: int,
    first_line: int,
    refuse_long: bool,
) -> list[tuple[int, Sequence[TokenT]]]:
    """Split lines into segments: none for an empty line, one for most lines, several for a long line.

    Returns pairs of an index into ``texts`` and tokens, in order. A *sentence* that is too long is an error
    if ``refuse_long``; if not, it is cut, because an evaluation must score every line.
    """
    segments: list[tuple[int, Sequence[TokenT]]] = []
    reasons: dict[int, str] = {}
    for index, tokens in enumerate(encode(texts)):
        if len(tokens) < max_length:
            segments += [(index, tokens)] if tokens else []
            continue
        for sentence in encode(split_sentences(texts[index])):
            if refuse_long and len(sentence) >= max_length:
                line = first_line + index
                reasons.setdefault(
                    line,
                    f"line {line} has a sentence of {len(sentence) + 1} tokens, but this model "
                    f"reads at most {max_length} (data.max_length when it was trained). "
                    "Break it into shorter sentences.",
                )
            width = max_length - 1
            segments += [(index, sentence[at : at + width]) for at in range(0, len(sentence), width)]
    if reasons:
        raise LinesError(reasons)
    return segments


def split_sentences(text: str) -> list[str]:
    """Split a line after each full stop, question mark or exclamation mark."""
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    sentences = (text[start:end].strip() for start, end in pairwise(ends))
    return [sentence for sentence in sentences if sentence]


def lines_of(text: str) -> list[str]:
    """The lines of a text, whose translations are lines as well."""
    return re.split("\r\n|\n|\r", text)


@contextmanager
def named_by_text(texts: Sequence[Sequence[str]], first_line: int) -> Iterator[None]:
    """Name the texts in errors about their lines, which are numbered through all texts."""
    try:
        yield
    except LinesError as error:
        names = [
            (number, f"text {number}" + (f", line {line}" if len(lines) > 1 else ""))
            for number, lines in enumerate(texts, first_line)
            for line in range(1, len(lines) + 1)
        ]
        reasons: dict[int, str] = {}
        for line, reason in sorted(error.reasons.items()):
            number, name = names[line - first_line]
            reasons.setdefault(number, name + reason.removeprefix(f"line {line}"))
        raise type(error)(reasons) from error


def check_one_line(texts: Sequence[Sequence[str]], first_line: int) -> None:
    """Check that no text has several lines with text, whose n-best lists could not be combined."""
    reasons = {
        number: f"text {number} has several lines, so it has no n-best list. Give each line as a text of its "
        "own, or join them with join_lines."
        for number, lines in enumerate(texts, first_line)
        if sum(map(bool, map(str.strip, lines))) > 1
    }
    if reasons:
        raise LinesError(reasons)


def check_not_split(segments: Sequence[Segment]) -> None:
    """Check that no line has several segments, whose n-best lists could not be combined."""
    reasons = {
        segment.line: f"line {segment.line} is too long to be translated as a whole, so it has no n-best "
        "list. Give each of its sentences separately."
        for segment in segments
        if segment.number > 0
    }
    if reasons:
        raise LinesError(reasons)


def as_translation(
    segment: Segment, hypothesis: Hypothesis, score: float, tgt_tokenizer: Tokenizer
) -> Translation:
    """Decode a hypothesis, with the copied words in place of its UNK tokens."""
    text = tgt_tokenizer.decode(hypothesis.ids, copied_words(segment, hypothesis))
    return Translation(text, hypothesis.score, score, [(segment, hypothesis)])


def copied_words(segment: Segment, hypothesis: Hypothesis) -> list[str]:
    """The text of each UNK of a hypothesis, in order; nothing if unknown words are not copied."""
    # The unknown words of the prefix come first, regardless of the source positions they were aligned with.
    given = [token.copy for token in segment.prefix if token.copy is not None]
    copied = [segment.tokens[position].copy or "" for position in hypothesis.copied[len(given) :]]
    return [*given, *copied]


def joined(parts: Sequence[Translation]) -> Translation:
    """Join the translations of the segments of a line; an empty line has log-probability 0."""
    return Translation(
        join_sentences([part.text for part in parts]),
        sum(part.log_prob for part in parts),
        sum(part.score for part in parts),
        list(chain.from_iterable(part.parts for part in parts)),
    )


def joined_lines(lines: Sequence[Sequence[Translation]]) -> list[Translation]:
    """The translations of a text, the best first, from those of its lines; at most one line has several."""
    if len(lines) == 1:
        return list(lines[0])
    alternatives = [
        [line[min(rank, len(line) - 1)] for line in lines] for rank in range(max(map(len, lines)))
    ]
    return [replace(joined(parts), text="\n".join(part.text for part in parts)) for parts in alternatives]


def count_finished_lines(
    num_lines: int, segments: Sequence[Segment], advance: Callable[[int], object]
) -> Callable[[Sequence[Segment]], None]:
    """Return a function to call after each batch; it calls ``advance`` with the number of finished lines."""
    left = Counter(segment.place for segment in segments)
    advance(num_lines - len(left))

    def count(batch: Sequence[Segment]) -> None:
        left.subtract(segment.place for segment in batch)
        advance(sum(not left[place] for place in {segment.place for segment in batch}))

    return count
