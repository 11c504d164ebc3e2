"""Splits texts into the segments that search translates, puts back what must stay, and joins translations."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import NamedTuple, Self

from mt.data.as_written import joined
from mt.data.line_facts import has_no_letters
from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.data.tokenizers.word_level import SPACE_BYTE, SPACE_MARK
from mt.inference.engines import Attention
from mt.inference.exported_folder import ModelFacts
from mt.inference.kept import KeptParts, without_marks
from mt.inference.sentences import read_long
from mt.inference.source_reader import SourceReader, SourceToken
from mt.search.hypothesis import Hypothesis
from mt.special_tokens import UNK_ID

# Stands for a copy until all else is written.
_COPY = "\ue004"


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
    is_part: bool = False
    """Whether it is a part of a sentence that is too long for the model."""

    def prefix_copies(self) -> list[int]:
        """For each token of the prefix, the position of an unknown source word that it copies, or -1."""
        left = {index: token.copy for index, token in enumerate(self.tokens) if token.copy is not None}
        copies = []
        for token in self.prefix:
            positions = [position for position, copy in left.items() if copy == token.copy]
            copies.append(positions[0] if positions else -1)
            left.pop(copies[-1], None)
        return copies

    def lengths(self, tokenizer: Tokenizer) -> list[int]:
        """How many characters each token represents, without spaces."""
        lengths = tokenizer.lengths
        return [_num_shown(token.text) if token.text else lengths[token.id] for token in self.tokens]

    def lengths_written(self, hypothesis: Hypothesis, tokenizer: Tokenizer) -> list[int]:
        """How many characters each token of a hypothesis writes, without spaces."""
        copies = iter(self.copied_words(hypothesis))
        lengths = tokenizer.lengths
        return [
            _num_shown(without_marks(next(copies, ""))) if token == UNK_ID else lengths[token]
            for token in hypothesis.ids
        ]

    def copied_words(self, hypothesis: Hypothesis) -> list[str]:
        """The text of each UNK of a hypothesis, in order; nothing if unknown words are not copied."""
        # Those of the prefix come first, regardless of the source positions they were aligned with.
        words = [token.copy for token in self.prefix if token.copy is not None]
        for position in hypothesis.copied[len(words) :]:
            words.append(self.tokens[position].copy or "")
        return words

    def lost_positions(self, hypothesis: Hypothesis) -> list[int]:
        """The source positions of what must stay, but was not copied."""
        positions = [position for position, token in enumerate(self.tokens) if token.must_stay]
        return [position for position in positions if position not in hypothesis.copied]


class Lines(NamedTuple):
    """What is translated of a text, each by itself, and what stands before, between and behind it."""

    texts: list[str]
    between: list[str]

    @classmethod
    def of(cls, text: str, *, join: bool, kept: KeptParts) -> Self:
        """The lines of a text, or its only line, and the parts of a line in which something is ``kept``."""
        lines = cls([], [""])
        for number, line in enumerate([text] if join else split_lines(text)):
            texts, (first, *others) = kept.apart(line)
            lines.texts.extend(texts)
            lines.between[-1] += ("\n" if number else "") + first
            lines.between.extend(others)
        return lines


class Part(NamedTuple):
    """A segment with one of its translations."""

    segment: Segment
    hypothesis: Hypothesis
    score: float
    """That by which the hypotheses are ranked."""


@dataclass(frozen=True)
class Translation:
    """One translation of a text."""

    text: str
    log_prob: float
    """The total natural log-probability of its tokens and EOS, or the token that was cut off instead."""
    score: float
    """The score that ranks it: `Beam.normalised_score`; by default settings for other strategies."""
    parts: Sequence[tuple[Segment, Hypothesis]] = ()
    """The segments of the text, each with its hypothesis; none for empty lines and copied numbers."""
    unknown: Sequence[str] = ()
    """The words of the text that the model does not know, without those of a dictionary."""
    copied: Sequence[str] = ()
    """Those of the unknown words that are in the translation."""
    lost: Sequence[str] = ()
    """What must stay, but is not in the translation."""

    @property
    def is_cut(self) -> bool:
        """Whether a sentence was too long for the model, and translated in parts."""
        return any(segment.is_part for segment, _ in self.parts)


def read_segments(
    texts: Sequence[Sequence[str]],
    prefixes: Sequence[Sequence[SourceToken]],
    reader: SourceReader,
    facts: ModelFacts,
) -> list[Segment]:
    """Read the lines of texts: no segment for an empty line, one for most lines, several for a long one.

    The first segment of a text gets its prefix. Lines without letters have none if `join_parts` copies them.
    """
    tokens_of_lines = iter(reader.read_batch([line for lines in texts for line in lines]))
    segments: list[Segment] = []
    for index, (lines, prefix) in enumerate(zip(texts, prefixes, strict=True)):
        number = 0
        for line_index, (line, tokens) in enumerate(zip(lines, tokens_of_lines, strict=False)):
            if facts.copies_signs and has_no_letters(line) and not (prefix or reader.has_entries):
                continue
            is_long = len(reader.direction) + len(tokens) >= facts.max_length
            for parts in read_long(line, reader, facts) if is_long else [[tokens]]:
                for part in filter(None, parts):
                    start = [] if number else prefix
                    read = [*reader.direction, *part]
                    segments.append(Segment(index, line_index, number, read, start, len(parts) > 1))
                    number += 1
    return segments


def _num_shown(text: str) -> int:
    """The number of its characters, without spaces."""
    return sum(map(len, text.split()))


def put_back(
    segment: Segment, hypothesis: Hypothesis, attention: Attention, tokenizer: Tokenizer
) -> Hypothesis:
    """A translation in which all is copied that must stay.

    Each is put before the word that attends most to the word that follows it in the source, or behind the one
    that attends most to the word before; not into the prefix.
    """
    tokens = segment.tokens
    first = len(segment.prefix)
    starts = _word_starts(hypothesis.ids, tokenizer)
    places: list[tuple[int, int]] = []
    for position in segment.lost_positions(hypothesis):
        after = _next_word(tokens, range(position + 1, len(tokens)))
        nearest = after if after is not None else _next_word(tokens, range(position - 1, -1, -1))
        place = len(hypothesis.ids)
        # The last token of the longest translation is not read.
        steps = range(first, min(place, len(attention)))
        if nearest is not None and steps:
            place = max(steps, key=lambda step: attention[step][nearest])
            if after is None:
                place += 1
            while not starts[place]:
                place += 1 if after is None else -1
        places.append((max(place, first), position))
    ids = [*hypothesis.ids]
    copied = [*hypothesis.copied]
    rows = [*attention]
    # From the end, so that the places before stay what they are.
    for place, position in sorted(places, reverse=True):
        copied.insert(ids[:place].count(UNK_ID), position)
        ids.insert(place, UNK_ID)
        row = [0.0] * len(tokens)
        row[position] = 1.0
        rows.insert(place, row)
    return replace(hypothesis, ids=ids, copied=copied, attention=rows)


def _next_word(tokens: Sequence[SourceToken], positions: range) -> int | None:
    """The first of these positions at which there is a word that is translated."""
    for position in positions:
        token = tokens[position]
        if not token.must_stay and any(map(str.isalnum, token.text)):
            return position
    return None


def _word_starts(ids: Sequence[int], tokenizer: Tokenizer) -> list[bool]:
    """Whether a word of its own can stand before each token, and at the end."""
    starts = []
    for step, token in enumerate(tokenizer.tokens(ids)):
        is_part = any(map(str.isalnum, token)) and not token.startswith((SPACE_MARK, SPACE_BYTE))
        follows_space = step == 0 or ids[step - 1] in tokenizer.spaces
        starts.append(tokenizer.has_words or not is_part or follows_space)
    return [*starts, True]


def split_lines(text: str) -> list[str]:
    """The lines of a text, whose translations are lines as well."""
    return re.split("\r\n|\n|\r", text)


def join_parts(
    source: Lines,
    parts: Sequence[Part],
    tokenizer: Tokenizer,
    restored: Callable[[str, str], str] = lambda line, written: written,
) -> Translation:
    """The translation of the lines of a text from those of its segments.

    All but copies is ``restored`` from a line and what was written for it, as in the capitals that it has.
    """
    lines: list[list[str]] = [[] for _ in source.texts]
    unknown = []
    copied = []
    for segment, hypothesis, _ in parts:
        copies = segment.copied_words(hypothesis)
        written = tokenizer.decode(hypothesis.ids, [_COPY] * len(copies))
        # Put in last, so that copies stay as they are.
        parts_around = restored(source.texts[segment.line], written).split(_COPY)
        written = "".join(chain(*zip_longest(parts_around, copies, fillvalue="")))
        lines[segment.line].append(normalise_spacing(without_marks(written)))
        for position, token in enumerate(segment.tokens):
            if token.id != UNK_ID or not token.text or token.must_stay:
                continue
            # Of a dictionary, the copy is another word.
            if token.copy in (None, token.text):
                unknown.append(token.text)
                copied += [token.text] if position in hypothesis.copied else []
    for line, translated in zip(source.texts, lines, strict=True):
        if not translated and has_no_letters(line):
            translated.append(normalise_spacing(line))
    text = source.between[0]
    for translated, between in zip(lines, source.between[1:], strict=True):
        text += joined(translated) + between
    return Translation(
        text,
        sum((part.hypothesis.score for part in parts), start=0.0),
        sum((part.score for part in parts), start=0.0),
        [(part.segment, part.hypothesis) for part in parts],
        unknown,
        copied,
    )
