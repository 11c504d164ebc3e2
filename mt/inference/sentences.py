"""Where a line that is too long for the model is cut: at the ends of sentences, at commas, between words."""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

from mt.data.unsegmented_scripts import split_letters
from mt.inference.exported_folder import ModelFacts
from mt.inference.source_reader import SourceReader, SourceToken

# A stop and its closing quotes or brackets, followed by a space except in Chinese, Japanese and Burmese.
_STOP = re.compile(
    r"""[.!?…।॥۔؟։።](?:["'”’»)\]]|\s»){0,3}(?=\s)(?!\s+»)"""
    r"""|[。！？｡။][”’」』）】》]{0,3}(?![。！？｡။”’」』）】》])"""
)
_FIRST_LETTER, _NEXT_LETTER = re.compile(r"[^\w]*(\w)"), re.compile(r"\s+[^\w\s]*(\w)")
_SINGLE_LETTER = re.compile(r"(?:.*\W)?[^\W\d_]")
_OPENING, _LONGEST_ABBREVIATION = "([{\"'„“”«‹‘’‚¿¡-–—/", 50
_CLAUSE, _WORD = re.compile(r"\s*\S.*?(?:[,;:،؛](?=\s)|[，、；：]|$)", re.DOTALL), re.compile(r"\s*\S+")
# Languages in which a number and a stop are an ordinal, as "3. Oktober".
_WITH_ORDINALS = "bs cs da de eo et eu fi fo hr hsb hu is lb lt lv mk nb nds nn no pl sk sl sr tr"
_FEW_WORDS = 2

Tokens = Sequence[SourceToken]


def split_sentences(text: str, facts: ModelFacts) -> list[str]:
    """Split a line after each full stop, question mark or exclamation mark that ends a sentence."""
    has_ordinals = re.split("[-_]", facts.src.lower())[0] in _WITH_ORDINALS.split()
    # Where a line itself begins in lower case, its sentences may as well.
    first = _FIRST_LETTER.match(text)
    is_cased = first is not None and not first[1].islower()
    ends = [0]
    for stop in _STOP.finditer(text):
        following = _NEXT_LETTER.match(text, stop.end())
        if is_cased and following and following[1].islower():
            continue
        start = max(ends[-1], stop.start() - _LONGEST_ABBREVIATION)
        before = text[start : stop.start()].split()
        if before and text[stop.start()] == ".":
            word = before[-1].lstrip(_OPENING)
            is_abbreviation = word in facts.abbreviations or _SINGLE_LETTER.fullmatch(word)
            if is_abbreviation or (has_ordinals and word.isdigit()):
                continue
        ends.append(stop.end())
    sentences = (text[start:end] for start, end in pairwise([*ends, len(text)]))
    return [sentence for sentence in sentences if sentence.strip()]


def _packed(pieces: Sequence[str], reader: SourceReader, most: int, few: int = sys.maxsize) -> list[str]:
    """Join neighbours, one of which has at most ``few`` words, to at most ``most`` tokens."""
    packed: list[str] = []
    length = 0
    for piece, tokens in zip(pieces, reader.read_batch(pieces), strict=True):
        length += len(tokens)
        # Each letter of an unsegmented script is a word.
        sizes = [len(split_letters(text).split()) for text in (*packed[-1:], piece)]
        if packed and length <= most and min(sizes) <= few:
            packed[-1] += piece
        else:
            packed.append(piece)
            length = len(tokens)
    return packed


def _parts(text: str, cuts: Sequence[re.Pattern[str]], reader: SourceReader, most: int) -> list[Tokens]:
    """The tokens of a text, in parts of at most ``most``, by the first of these cuts that will do."""
    [tokens] = reader.read_batch([text.strip()])
    if len(tokens) <= most or not cuts:
        return [tokens[start : start + most] for start in range(0, len(tokens), most)]
    parts = []
    for piece in _packed(cuts[0].findall(text), reader, most):
        parts += _parts(piece, cuts[1:], reader, most)
    return parts


def read_long(line: str, reader: SourceReader, facts: ModelFacts) -> Iterator[list[Tokens]]:
    """The sentences of a line that is too long for the model, each in as many parts as it needs.

    Sentences of a word or two are joined with a neighbour: most are wrongly cut.
    """
    most = facts.max_length - 1 - len(reader.direction)
    for sentence in _packed(split_sentences(line, facts), reader, most, _FEW_WORDS):
        yield _parts(sentence, (_CLAUSE, _WORD), reader, most)
