"""Puts tags into a translation: around the words that attend to those that they were around."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mt.inference.kept import MARK, marked
from mt.inference.labels import WordAttention

WORD = re.compile(rf"{MARK}|\w+(?:[-'’]\w+)*|[^\w\s]")
"""What tags are put around: a word, a sign, or what stays."""


@dataclass
class Tag:
    """An element around words, or something beside or in place of one, where ``start`` is ``end``."""

    opening: Sequence[object]
    """What it consists of, as it stands in the page: strings, or what becomes one."""
    closing: str = ""
    start: int = 0
    end: int = 0
    """The characters of the text that it is around."""
    inner: list["Tag"] = field(default_factory=list)
    number: int | None = None
    """Of what stays, as a word: the number by which the text marks it, if the model keeps words."""

    def marks(self) -> set[str]:
        """The marks of what stays in it."""
        found = set() if self.number is None else {marked(self.number)}
        for tag in self.inner:
            found |= tag.marks()
        return found


class Span(NamedTuple):
    """Words of a translation, or a place between characters if there are none."""

    first: int
    last: int
    start: int
    end: int


class Placing:
    """A translated text into which the tags of its source are put."""

    def __init__(
        self, source: str, target: str, attention: WordAttention, write: Callable[[str], str]
    ) -> None:
        """Prepare to put tags into ``target``, of which ``write`` escapes the text."""
        read = [match.span() for match in WORD.finditer(source)]
        self._starts = [start for start, _ in read]
        self._ends = [end for _, end in read]
        self._words = [match.span() for match in WORD.finditer(target)]
        self._text = target
        self._attention = attention
        self._whole = self._attention_on(range(len(read)))
        self._write = write
        self._marks: dict[str, int] = {}
        for match in re.finditer(MARK, target):
            self._marks.setdefault(match[0], self._words.index(match.span()))

    def render(self, tags: Sequence[Tag]) -> str:
        """The text with the tags in it."""
        everything = Span(0, len(self._words), 0, len(self._text))
        return self._inside(tags, everything, range(len(self._starts)))

    def _inside(self, tags: Sequence[Tag], parent: Span, read: range) -> str:
        """The words of ``parent``, which was around the words ``read``, with these tags in them."""
        spans: dict[int, Span] = {}
        taken: set[int] = set()
        for index, tag in enumerate(tags):
            span = self._around(tag, parent, read, taken)
            if span is not None:
                spans[index] = span
                taken.update(range(span.first, span.last))
        around = [*spans.values()]
        for index, tag in enumerate(tags):
            if index not in spans:
                spans[index] = self._beside(tag, parent, around)
        text = ""
        position = parent.start
        for index, span in sorted(spans.items(), key=lambda item: (item[1].start, item[0])):
            tag = tags[index]
            text += self._between(position, span.start)
            text += self._with_tag(tag, span)
            position = max(position, span.end)
        return text + self._between(position, parent.end)

    def _with_tag(self, tag: Tag, span: Span) -> str:
        opening = "".join(map(str, tag.opening))
        if tag.number is None:
            return opening + self._inside(tag.inner, span, self._read(tag)) + tag.closing
        # Beside a word it is one of its own, for which no mark stands.
        return f" {opening} " if span.first == span.last else opening

    def _between(self, start: int, end: int) -> str:
        """Text without the marks of what was put elsewhere."""
        return self._write(re.sub(MARK, "", self._text[start:end]))

    def _read(self, tag: Tag) -> range:
        """The words of the source that a tag was around, or a part of which it was around."""
        return range(bisect_right(self._ends, tag.start), bisect_left(self._starts, tag.end))

    def _around(self, tag: Tag, parent: Span, whole: range, taken: Collection[int]) -> Span | None:
        """The neighbouring words that attend more to those of the tag than to others; not those ``taken``."""
        own = {self._marks[mark] for mark in tag.marks() if mark in self._marks}
        if tag.number is not None:
            inside = [word for word in own if parent.first <= word < parent.last]
            return self._span(inside[0], inside[0]) if inside else None
        if tag.start == tag.end:
            return None
        read = self._read(tag)
        if read == whole and read and not taken:
            return parent
        others = {*taken, *self._marks.values()} - own
        shares = self._shares(read)
        best: tuple[int, int] | None = None
        closest = None
        most_gain = most_share = gain = 0.0
        begin = parent.first
        for word in range(parent.first, parent.last):
            if word in others:
                gain = 0.0
                begin = word + 1
                continue
            share = shares[word]
            if share > most_share:
                most_share = share
                closest = word
            gain += len(self._words) if word in own else share - 0.5
            if gain <= 0:
                gain = 0.0
                begin = word + 1
            elif gain > most_gain:
                most_gain = gain
                best = begin, word
        if best is None and closest is not None:
            best = closest, closest
        return self._span(*best) if best else None

    def _span(self, first: int, last: int) -> Span:
        """Words, both included."""
        start, _ = self._words[first]
        _, end = self._words[last]
        return Span(first, last + 1, start, end)

    def _attention_on(self, read: range) -> dict[int, float]:
        """How much the words of the translation attend to these words of the source."""
        found: dict[int, float] = defaultdict(float)
        for src_words, tgt_words, rows in self._attention:
            positions = [position for position, word in enumerate(src_words) if word in read]
            for word, row in zip(tgt_words if positions else (), rows, strict=False):
                if word is not None:
                    found[word] += sum(row[positions[0] : positions[-1] + 1])
        return found

    def _shares(self, read: range) -> list[float]:
        """Which part of the attention of each word is on these words of the source."""
        inside = self._attention_on(read)
        return [inside[word] / (self._whole[word] or 1.0) for word in range(len(self._words))]

    def _beside(self, tag: Tag, parent: Span, around: Sequence[Span]) -> Span:
        """The place before the translation of the word that follows a tag, or behind that of the one before.

        It is the one before if only that touches the tag, or if no word follows.
        """
        before = bisect_right(self._ends, tag.start) - 1
        after = bisect_left(self._starts, tag.start)
        touches_before = before >= 0 and self._ends[before] == tag.start
        follows = after < len(self._starts) and not touches_before
        nearest = after if follows else before
        place = parent.start if follows or before < 0 else parent.end
        if nearest >= 0 and parent.first < parent.last:
            shares = self._shares(range(nearest, nearest + 1))
            word = max(range(parent.first, parent.last), key=shares.__getitem__)
            start, end = self._words[word]
            place = start if follows else end
        for span in around:
            if span.start < place < span.end:
                place = span.start if follows else span.end
        return Span(0, 0, place, place)
