"""Translates pages in HTML or Markdown."""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from mt.errors import DataError
from mt.inference.kept import marked
from mt.inference.markup.html_pieces import html_pieces
from mt.inference.markup.markdown_pieces import markdown_pieces
from mt.inference.markup.pieces import Format, Piece, partners
from mt.inference.markup.placing import WORD, Placing, Tag, Weights
from mt.inference.segments import Translation
from mt.inference.sentences import join_sentences, split_sentences

if TYPE_CHECKING:
    from mt.inference.translator import Translator

_MOST_CHARACTERS, _MOST_TAGS = 2_000_000, 50_000
_MOST_TAGS_OF_TEXT, _MOST_NESTED = 1_000, 200
_SPACES, _EDGES = re.compile(r"\s++"), re.compile(r"((?:\s|&nbsp;)+)")
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")

Writer = Callable[[str], str]
"""Writes text as it is written in a page."""


class _Markup(NamedTuple):
    """How pages are read and written."""

    pieces: Callable[[str], list[Piece]]
    read: Callable[[str], str]
    """What a part of a page reads as."""
    writer: Callable[[str], Writer]
    """How text is written in this part of a page."""


def _writer_of_html(raw: str) -> Writer:
    """Write characters as references that are so in ``raw``, or would be read as tags."""
    bare = _REFERENCE.sub("", raw)
    table = {"<": "&lt;"}
    for sign, reference in ("&", "&amp;"), (">", "&gt;"):
        if sign not in bare:
            table[sign] = reference
    for reference in _REFERENCE.findall(raw):
        table[html.unescape(reference)] = reference
    signs = {ord(sign): reference for sign, reference in table.items() if len(sign) == 1}
    return lambda text: text.translate(signs)


_MARKUPS: dict[Format, _Markup] = {
    "html": _Markup(html_pieces, html.unescape, _writer_of_html),
    "markdown": _Markup(markdown_pieces, str, lambda raw: str),
}


class _Text:
    """A text within a page: the value of an attribute, or what stands between tags that end a text."""

    def __init__(self, plain: str, write: Writer) -> None:
        """Begin without tags."""
        self.plain = plain
        self.tags: list[Tag] = []
        self.sentences = [plain]
        """What is translated by itself: all of it, or its sentences if it has tags and is long."""
        self._write = write
        self._written = ""

    def put(self, translations: Sequence[str], weights: Weights) -> None:
        """Take the translations of its sentences, and how their words attend to its own."""
        translated = join_sentences(translations)
        if self.tags:
            self._written = Placing(self.plain, translated, weights, self._write).render(self.tags)
        else:
            self._written = self._write(translated)

    def __str__(self) -> str:
        """The translation, as it stands in the page."""
        return self._written


class Documents:
    """Pages in which ``texts``, each of a line, are to be translated."""

    def __init__(self, translator: "Translator", pages: Sequence[str], markup: Format) -> None:
        """Read pages.

        Raises:
            DataError: If one of them is too long, or has too many tags in one place.
        """
        self._translator = translator
        self._markup = _MARKUPS[markup]
        self._texts: list[_Text] = []
        self._pages = [self._read(page) for page in pages]
        self._split_long()
        self.texts = [sentence for text in self._texts for sentence in text.sentences]

    def translated(self, translations: Sequence[Translation]) -> list[str]:
        """The pages with the translations of ``texts``."""
        have_tags = [bool(text.tags) for text in self._texts for _ in text.sentences]
        pairs = [*compress(zip(self.texts, translations, strict=True), have_tags)]
        weights = iter(_weights(self._translator, pairs))
        left = iter(translations)
        for text in self._texts:
            written = [next(left).text for _ in text.sentences]
            joined: dict[int, Mapping[int, float]] = {}
            num_read = 0
            num_written = 0
            for sentence, translation in zip(text.sentences, written, strict=True) if text.tags else ():
                for word, row in next(weights).items():
                    joined[num_written + word] = {num_read + index: weight for index, weight in row.items()}
                num_read += len(WORD.findall(sentence))
                num_written += len(WORD.findall(translation))
            text.put(written, joined)
        return ["".join(map(str, parts)) for parts in self._pages]

    def _read(self, page: str) -> list[object]:
        """What stays of a page, and its texts."""
        for number, most, what in (
            (len(page), _MOST_CHARACTERS, "characters"),
            (page.count("<"), _MOST_TAGS, "tags"),
        ):
            if number > most:
                raise DataError(f"a page has {number:,} {what}, but may have {most:,}: split it.")
        parts: list[object] = []
        run: list[Piece] = []
        for piece in [*self._markup.pieces(page), Piece("break", "")]:
            if piece.kind == "break":
                parts += self._run(run)
                parts += self._with_values(piece)
                run = []
            elif piece.kind == "text":
                run += [Piece("text", part) for part in _edges(piece.raw)]
            else:
                run.append(piece)
        return parts

    def _with_values(self, piece: Piece) -> list[object]:
        """What a piece consists of: of a tag, some attributes are texts."""
        parts: list[object] = []
        position = 0
        for start, end in piece.values:
            raw = piece.raw[start:end]
            inner = raw[1:-1] if raw[0] in "\"'" else raw
            plain = " ".join(self._markup.read(inner).split())
            if _has_letters(plain):
                text = _Text(plain, self._markup.writer(f"{inner}&quot;"))
                self._texts.append(text)
                parts += [piece.raw[position:start], '"', text, '"']
                position = end
        return [*parts, piece.raw[position:]]

    def _run(self, pieces: Sequence[Piece]) -> list[object]:
        """What stands between tags that end a text: a text, and what is beside it."""
        raw = "".join(piece.raw for piece in pieces if piece.kind == "text")
        first = 0
        last = len(pieces)
        while first < last and _is_beside(pieces[first]):
            first += 1
        while first < last and _is_beside(pieces[last - 1]):
            last -= 1
        if not _has_letters(self._markup.read(raw)):
            last = first
        parts: list[object] = []
        for piece in pieces[:first]:
            parts += self._with_values(piece)
        if first < last:
            parts.append(self._text(pieces[first:last], raw))
        for piece in pieces[last:]:
            parts += self._with_values(piece)
        return parts

    def _text(self, pieces: Sequence[Piece], raw: str) -> _Text:
        """The text of pieces, with their tags."""
        if sum(piece.kind != "text" for piece in pieces) > _MOST_TAGS_OF_TEXT:
            raise DataError(f"a page has more than {_MOST_TAGS_OF_TEXT:,} tags in one text: split it.")
        closing = partners(pieces)
        opened: list[tuple[int, Tag]] = []
        tags: list[Tag] = []
        plain = ""
        for index, piece in enumerate(pieces):
            if piece.kind == "text":
                words = _SPACES.sub(" ", self._markup.read(piece.raw))
                plain += words.removeprefix(" ") if plain[-1:] in ("", " ") else words
                continue
            start = len(plain)
            if any(closing[number] == index for number, _ in opened):
                while closing[opened[-1][0]] != index:
                    # It overlaps with another element: its tags stand by themselves.
                    _, overlapping = opened.pop()
                    opened[-1][1].inner += overlapping.inner
                    overlapping.inner = []
                _, tag = opened.pop()
                tag.closing = piece.raw
                tag.end = start
                continue
            tag = Tag(self._with_values(piece), start=start, end=start)
            siblings = opened[-1][1].inner if opened else tags
            siblings.append(tag)
            if index in closing:
                opened.append((index, tag))
            elif piece.kind == "stay":
                tag.number = index
                if self._translator.reader.keeps_parts:
                    plain += marked(index)
                    tag.end = len(plain)
            if len(opened) > _MOST_NESTED:
                raise DataError(f"a page has more than {_MOST_NESTED} elements in each other: flatten it.")
        text = _Text(plain.rstrip(), self._markup.writer(raw))
        text.tags = tags
        self._texts.append(text)
        return text

    def _split_long(self) -> None:
        """Let the sentences of texts with tags be translated by themselves where a text is too long."""
        reader = self._translator.reader
        facts = self._translator.facts
        texts = [text for text in self._texts if text.tags]
        read = reader.tokenizer.encode_batch([text.plain for text in texts])
        for text, ids in zip(texts, read, strict=True):
            if len(reader.direction) + len(ids) >= facts.max_length:
                text.sentences = [sentence.strip() for sentence in split_sentences(text.plain, facts)]


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _edges(raw: str) -> list[str]:
    """The white space before a text, the text, and that behind it."""
    parts = _EDGES.split(raw)
    before = parts[1] if len(parts) > 1 and not parts[0] else ""
    after = parts[-2] if len(parts) > 1 and not parts[-1] and before != raw else ""
    return [before, raw[len(before) : len(raw) - len(after)], after]


def _is_beside(piece: Piece) -> bool:
    """Whether a piece at an edge of a text is no part of it."""
    return piece.kind == "point" or (piece.kind == "text" and _EDGES.fullmatch(piece.raw or " ") is not None)


def _weights(translator: "Translator", pairs: Sequence[tuple[str, Translation]]) -> Iterator[Weights]:
    """How the words of each translation attend to those of its source."""
    whole = [(source, translation) for source, translation in pairs if len(translation.parts) == 1]
    found = iter(translator.attention_of_words(whole, WORD.findall))
    for source, translation in pairs:
        if len(translation.parts) == 1:
            yield next(found)
            continue
        # Its parts were read apart: a word attends to the one at the same part of the length.
        num_read = len(WORD.findall(source))
        num_written = len(WORD.findall(translation.text))
        yield {word: {word * num_read // num_written: 1.0} for word in range(num_written)}
