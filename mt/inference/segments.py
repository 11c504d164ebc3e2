"""Splits texts into the segments that search translates, and joins the translations of segments."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.unsegmented_scripts import NO_SPACE_AFTER
from mt.inference.source_reader import SourceReader, SourceToken
from mt.search.hypothesis import Hypothesis

# A stop and its closing quotes or brackets, followed by a space except in Chinese, Japanese and Burmese.
_SENTENCE_END = re.compile(
    r"""[.!?…।॥۔؟։።](?:["'”’»)\]]|\s»){0,3}(?=\s)(?!\s+»)"""
    r"""|[。！？｡။][”’」』）】》]{0,3}(?![。！？｡။”’」』）】》])"""
)


@dataclass(frozen=True)
class Segment:
    """A line, or one sentence of a line that is too long for the model."""

    index: int
    """The index of its text among those that are translated together."""
    line: int
    """The index of its line in the text."""
    number: int
    """Its index among the segments of the text."""
    tokens: Sequence[SourceToken]
    prefix: Sequence[SourceToken]
    """The tokens that its translation starts with; unknown words among them are written as given."""

    def prefix_copies(self) -> list[int]:
        """For each token of the prefix, the position of an unknown source word that it copies, or -1."""
        left = {index: token.copy for index, token in enumerate(self.tokens) if token.copy is not None}
        copies = []
        for token in self.prefix:
            copies.append(next((position for position, copy in left.items() if copy == token.copy), -1))
            left.pop(copies[-1], None)
        return copies

    def copied_words(self, hypothesis: Hypothesis) -> list[str]:
        """The text of each UNK of a hypothesis, in order; nothing if unknown words are not copied."""
        # Those of the prefix come first, regardless of the source positions they were aligned with.
        given = [token.copy for token in self.prefix if token.copy is not None]
        return [*given, *(self.tokens[index].copy or "" for index in hypothesis.copied[len(given) :])]


@dataclass(frozen=True)
class Translation:
    """One translation of a text."""

    text: str
    log_prob: float
    """The total natural log-probability of its tokens and EOS, or the token that was cut off instead."""
    score: float
    """The score that ranks it: `Beam.normalised_score`; by default settings for other strategies."""
    parts: Sequence[tuple[Segment, Hypothesis]] = ()
    """The segments of the text, each with its hypothesis; none for an empty text."""


def read_segments(
    texts: Sequence[Sequence[str]],
    prefixes: Sequence[Sequence[SourceToken]],
    reader: SourceReader,
    max_length: int,
) -> list[Segment]:
    """Read the lines of texts: no segment for an empty line, one for most lines, several for a long one.

    A *sentence* of ``max_length`` tokens or more is cut. The first segment of a text gets its prefix.
    """
    tokens_of_lines = iter(reader.read_batch([line for lines in texts for line in lines]))
    segments: list[Segment] = []
    for index, (lines, prefix) in enumerate(zip(texts, prefixes, strict=True)):
        number = 0
        for line_index, (line, tokens) in enumerate(zip(lines, tokens_of_lines, strict=False)):
            is_long = len(tokens) >= max_length
            for sentence in reader.read_batch(split_sentences(line)) if is_long else [tokens]:
                for start in range(0, len(sentence), max_length - 1):
                    part = sentence[start : start + max_length - 1]
                    segments.append(Segment(index, line_index, number, part, [] if number else prefix))
                    number += 1
    return segments


def split_sentences(text: str) -> list[str]:
    """Split a line after each full stop, question mark or exclamation mark."""
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    sentences = (text[start:end].strip() for start, end in pairwise(ends))
    return [sentence for sentence in sentences if sentence]


def join_sentences(sentences: Sequence[str]) -> str:
    """Join sentences with spaces, but with none after a Chinese or Japanese letter or punctuation mark."""
    text = ""
    for sentence in filter(None, sentences):
        text += f" {sentence}" if text and not NO_SPACE_AFTER.match(text[-1]) else sentence
    return text


def lines_of(text: str) -> list[str]:
    """The lines of a text, whose translations are lines as well."""
    return re.split("\r\n|\n|\r", text)


def join_parts(
    num_lines: int, parts: Sequence[tuple[Segment, Hypothesis, float]], tokenizer: Tokenizer
) -> Translation:
    """The translation of a text from those of its segments, each with its score; that of none is empty."""
    lines: list[list[str]] = [[] for _ in range(num_lines)]
    for segment, hypothesis, _ in parts:
        lines[segment.line].append(tokenizer.decode(hypothesis.ids, segment.copied_words(hypothesis)))
    return Translation(
        "\n".join(map(join_sentences, lines)),
        sum((hypothesis.score for _, hypothesis, _ in parts), start=0.0),
        sum((score for *_, score in parts), start=0.0),
        [(segment, hypothesis) for segment, hypothesis, _ in parts],
    )
