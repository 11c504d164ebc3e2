"""Translates pages in HTML or Markdown."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mt.errors import DataError
from mt.inference.kept import marked
from mt.inference.markup.html_pieces import html_pieces
from mt.inference.markup.markdown_pieces import markdown_pieces
from mt.inference.markup.pieces import Format, Piece, partners
from mt.inference.markup.placing import WORD, Placing, Tag
from mt.inference.segments import Translation

if TYPE_CHECKING:
    from mt.inference.translator import Translator

_MOST_CHARACTERS, _MOST_TAGS = 2_000_000, 50_000
_MOST_TAGS_OF_TEXT, _MOST_NESTED = 1_000, 200
_SPACES = re.compile(r"\s++")
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")

Writer = Callable[[str], str]
"""Writes text as it is written in a page."""


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


@dataclass
class _Text:
    """A text within a page: the value of an attribute, or what stands between tags that end a text."""

    plain: str
    write: Writer
    tags: Sequence[Tag] = ()
    written: str = ""
    """The translation, as it stands in the page."""

    def __str__(self) -> str:
        return self.written


class Documents:
    """Pages in which ``texts``, each of a line, are to be translated."""

    def __init__(self, translator: "Translator", pages: Sequence[str], markup: Format) -> None:
        """Read pages.

        Raises:
            DataError: If one of them is too long, or has too many tags in one place.
        """
        self._translator = translator
        is_html = markup == "html"
        self._pieces = html_pieces if is_html else markdown_pieces
        self._unescape: Writer = html.unescape if is_html else str
        self._writer = _writer_of_html if is_html else lambda raw: str
        self._texts: list[_Text] = []
        self._pages = [self._read(page) for page in pages]
        self.texts = [text.plain for text in self._texts]

    def translated(self, translations: Sequence[Translation]) -> list[str]:
        """The pages with the translations of ``texts``."""
        pairs = [*zip(self._texts, translations, strict=True)]
        tagged = [(text.plain, translation) for text, translation in pairs if text.tags]
        attention = self._translator.attention_of_words(tagged, WORD.findall)
        for text, translation in pairs:
            if text.tags:
                placing = Placing(text.plain, translation.text, next(attention), text.write)
                text.written = placing.render(text.tags)
            else:
                text.written = text.write(translation.text)
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
        for piece in [*self._pieces(page), Piece("point", "", ends_text=True)]:
            if piece.ends_text:
                parts += self._run(run)
                parts += self._with_values(piece)
                run = []
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
            plain = " ".join(self._unescape(inner).split())
            if _has_letters(plain):
                text = _Text(plain, self._writer(f"{inner}&quot;"))
                self._texts.append(text)
                parts += [piece.raw[position:start], '"', text, '"']
                position = end
        return [*parts, piece.raw[position:]]

    def _run(self, pieces: Sequence[Piece]) -> list[object]:
        """What stands between tags that end a text: a text, and what is beside it."""
        raw = "".join(piece.raw for piece in pieces if piece.kind == "text")
        first = 0
        last = len(pieces) if _has_letters(self._unescape(raw)) else 0
        while first < last and _is_beside(pieces[first]):
            first += 1
        while first < last and _is_beside(pieces[last - 1]):
            last -= 1
        parts: list[object] = []
        for piece in pieces[:first]:
            parts += self._with_values(piece)
        if first < last:
            inside = [*pieces[first:last]]
            before, _ = _edges(inside[0].raw)
            inside[0] = inside[0]._replace(raw=inside[0].raw.removeprefix(before))
            _, after = _edges(inside[-1].raw)
            inside[-1] = inside[-1]._replace(raw=inside[-1].raw.removesuffix(after))
            parts += [before, self._text(inside, raw), after]
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
                words = _SPACES.sub(" ", self._unescape(piece.raw))
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
        text = _Text(plain.rstrip(), self._writer(raw), tags)
        self._texts.append(text)
        return text


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))


def _edges(raw: str) -> tuple[str, str]:
    """The white space at the start and at the end of a part of a page."""
    spaced = raw.replace("&nbsp;", " " * len("&nbsp;"))
    return raw[: len(raw) - len(spaced.lstrip())], raw[len(spaced.rstrip()) :]


def _is_beside(piece: Piece) -> bool:
    """Whether a piece at an edge of a text is no part of it."""
    return piece.kind == "point" or (piece.kind == "text" and not piece.raw.replace("&nbsp;", " ").strip())
