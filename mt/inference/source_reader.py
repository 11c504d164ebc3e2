"""Source words that are copied into the translation (unknown ones), or replaced by a dictionary's target.

The model reads each of them as one UNK, however many tokens it consists of: ``4711-23`` is one UNK, and so is
a dictionary entry of several words.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.unsegmented_scripts import split_letters
from mt.inference.kept import MARK, STAND_IN, KeptParts, marked, with_stand_ins
from mt.inference.known_forms import KnownForms
from mt.special_tokens import UNK_ID

# Matches the kinds that `_kind` returns: unknown words, digits and upper-case words without a space between
# them, but perhaps with punctuation.
_JOINED = re.compile(r"[uUdD](?:P*[UD])*")
# And those that `_address_kind` returns: an address or a compound, with a hash or at sign in front.
_ADDRESS = re.compile(r"[hH]W(?:[JSH]+W)*S?|[wW](?:[JSH]+W)+S?")
_SIGNS = {**dict.fromkeys("-.:_=?&%+~\\", "j"), "#": "h", "@": "h", "/": "s"}
_HAS_NAME = re.compile(r"[^\W\d_]|[#@]")


class SourceToken(NamedTuple):
    """A token of the source."""

    id: int
    """The id that the model reads."""
    copy: str | None
    """The text to write if search copies this token; None if it cannot be copied."""
    text: str = ""
    """The part of the text that it represents; `read_batch` gives it only where a word is unknown."""
    must_stay: bool = False
    """Whether the translation must have its copy."""


class SourceReader:
    """Turns text into source tokens and marks those that can be copied."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        dictionary: Mapping[str, str],
        *,
        copies: bool,
        tgt: str | None = None,
        known_forms: KnownForms | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        """Create a reader; ``copies`` says whether the model has learnt to copy unknown words.

        It reads sources to be translated into the language ``tgt``, or translations. With ``known_forms``, it
        reads an unknown word as one that is known, if there is one that it may stand for. What matches a
        pattern of ``keep`` stays as it is.
        """
        self.tokenizer = tokenizer
        self.known_forms = known_forms
        self.direction: list[SourceToken] = []
        """What a sentence begins with that is read by a model of several directions."""
        if tgt is not None:
            for token_id in tokenizer.beginning(tgt):
                self.direction.append(SourceToken(token_id, None))
        self._copies = copies
        in_form = dict(zip(tokenizer.form.rewrite([*dictionary]), dictionary.values(), strict=True))
        # Those of subwords are found in the text, and those of words by the words of an entry, of which an
        # unknown one may be a part.
        self._kept = KeptParts((MARK, *keep) if copies else (), {} if tokenizer.has_words else in_form)
        self._stand_in = [id_ for id_ in tokenizer.encode(STAND_IN) if id_ not in tokenizer.spaces]
        # An external tokenizer may drop it.
        if STAND_IN not in tokenizer.encode_with_words(f"a {STAND_IN}")[1]:
            self._kept = KeptParts((), {})
        self.keeps_parts = bool(self._kept.find(marked(0)))
        """Whether it marks what must stay."""
        self._entries = {}
        for source, target in in_form.items() if tokenizer.has_words else ():
            self._entries[(*tokenizer.encode_with_words(source)[1],)] = target
        self._longest = max(map(len, self._entries), default=0)
        self.has_entries = bool(dictionary)

    def read_batch(self, texts: Sequence[str]) -> list[list[SourceToken]]:
        """The source tokens of each text."""
        tokens = []
        for text, ids in zip(texts, self.tokenizer.encode_batch(texts), strict=True):
            if self._entries or UNK_ID in ids or self.style_of(text) or self._kept.find(text):
                tokens.append(self.read(text))
            else:
                tokens.append([SourceToken(id_, None) for id_ in ids])
        return tokens

    def read(self, text: str) -> list[SourceToken]:
        """The source tokens of a text, each with the part of the text that it represents.

        An entry of the dictionary within an unknown word, such as ``Zorblat-dog``, is ignored: if the model
        reads the halves of such a word apart, it often drops one.
        """
        [text] = self.tokenizer.form.rewrite([text])
        style = self.style_of(text)
        text, items = with_stand_ins(text, self._kept.find(text))
        ids, words = self.tokenizer.encode_with_words(text)
        if not self._copies:
            return [SourceToken(id_, None, word) for id_, word in zip(ids, words, strict=True)]
        starts: list[int] = []
        ends = [0]
        for word in words:
            starts.append(text.index(word, ends[-1]))
            ends.append(starts[-1] + len(word))
        if style and self.known_forms:
            # The words as they are in other lines.
            for index, word in enumerate(words):
                usual = self.known_forms.usual(word, is_first=index == 0)
                ids[index] = ids[index] if usual is None else usual
        touches = [0 < start == end for start, end in zip(starts, ends, strict=False)]
        unknown = _unknown_runs(ids, words, touches) if UNK_ID in ids else {}
        tokens: list[SourceToken] = []
        start = 0
        while start < len(words):
            if words[start] == STAND_IN and starts[start] in items:
                item = items[starts[start]]
                # The space before it is a part of it, as of any word; the first has one that is not written.
                if tokens and tokens[-1].id in self.tokenizer.spaces:
                    tokens.pop()
                tokens.append(SourceToken(UNK_ID, item.copy, item.text, must_stay=True))
                start += len(self._stand_in) + (ids[start] in self.tokenizer.spaces)
                continue
            entry_end = self._entry_end(words, start)
            end = entry_end or unknown.get(start, start + 1)
            part = " ".join(text[starts[start] : ends[end]].split())
            if entry_end:
                target = self._entries[(*words[start:end],)]
                tokens.append(SourceToken(UNK_ID, target, part, must_stay=True))
            elif ids[start] != UNK_ID and end == start + 1:
                tokens.append(SourceToken(ids[start], None, part))
            elif end == start + 1 and self.known_forms and (known := self.known_forms.find(part)) is not None:
                tokens.append(SourceToken(known, None, part))
            elif part:
                # An unknown space, as before a Chinese name in a Latin script, cannot be copied.
                tokens.append(SourceToken(UNK_ID, part, part))
            start = end
        return tokens

    def style_of(self, line: str) -> Callable[[str, str], str] | None:
        """What makes capitals or title case of its translation, if a line is read as one of such words."""
        return self.known_forms.style_of(self._kept.without(line)) if self.known_forms else None

    def _entry_end(self, words: Sequence[str], start: int) -> int | None:
        """The end of the longest entry of the dictionary that begins with this word."""
        for end in range(min(start + self._longest, len(words)), start, -1):
            if (*words[start:end],) in self._entries:
                return end
        return None


def _unknown_runs(ids: Sequence[int], words: Sequence[str], touches: Sequence[bool]) -> dict[int, int]:
    """The ends of the runs of tokens that are read as one unknown word, by their starts."""
    ends: dict[int, int] = {}
    for run in _JOINED.finditer("".join(map(_kind, ids, words, touches))):
        if "u" in run[0].lower():
            ends[run.start()] = run.end()
    for run in _ADDRESS.finditer("".join(map(_address_kind, words, touches))):
        start, end = run.span()
        unknown = [word for word, id_ in zip(words[start:end], ids[start:end], strict=True) if id_ == UNK_ID]
        # The model may know the words of "17-year-old".
        if any(map(_HAS_NAME.search, unknown)):
            ends[start] = max(end, ends.get(start, 0))
    return ends


def _kind(id_: int, word: str, touches: bool) -> str:
    """Describe a token by a letter, in upper case if no space precedes the token.

    ``u`` is unknown, ``d`` digits or upper case, ``p`` punctuation or a space, ``w`` anything else.
    """
    if word == STAND_IN:
        return "p"
    if id_ == UNK_ID and word:
        kind = "u"
    elif word.isupper() or any(character.isdigit() for character in word):
        kind = "d"
    else:
        kind = "w" if any(character.isalnum() for character in word) else "p"
    return kind.upper() if touches else kind


def _address_kind(word: str, touches: bool) -> str:
    """Describe a token by a letter, as `_kind` does: ``w`` is a word, the signs are those of `_SIGNS`."""
    if word == STAND_IN:
        return "p"
    is_word = any(map(str.isalnum, word)) and split_letters(word) == word
    kind = _SIGNS.get(word, "w" if is_word else "p")
    return kind.upper() if touches else kind
