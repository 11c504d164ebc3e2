"""Warnings about lines that cannot be translated and about words that the model does not know."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from mt.display import counted
from mt.errors import LinesError
from mt.special_tokens import UNK_ID

if TYPE_CHECKING:
    from mt.inference.segments import Translation
    from mt.inference.source_reader import SourceReader

NUM_NAMED = 5
MOST_CHARACTERS = 40

OnError = Literal["stop", "empty", "copy"]
Pairs = Sequence[tuple[str, str]]
"""Source sentences, each with the prefix of its translation, which may be empty."""
Search = Callable[..., "list[list[Translation]]"]
"""Takes sources, ``prefixes`` and ``first_line``, as `mt.inference.text_search.TextSearch.n_best` does."""


class Block(NamedTuple):
    """Lines that were translated together."""

    pairs: Pairs
    """What was translated; a bad line is replaced with an empty one."""
    translations: "list[list[Translation]]"
    """The translations of each line, the best first."""
    reasons: Mapping[int, str]
    """Why lines were not translated, by number."""
    stopped_by: str | None
    """Why translating stops after these lines; None if it continues."""


class BadLines:
    """Handles lines that cannot be translated, so that there is still one line out for one line in."""

    def __init__(self, on_error: OnError, name: str) -> None:
        """Create a handler.

        Args:
            on_error: Stop at the first bad line, or write an empty line or the source in its place.
            name: The name of the input, for messages.
        """
        self._on_error = on_error
        self._name = name
        self._num_bad = 0
        self._first_reason = ""

    def translate(
        self,
        pairs: Pairs,
        search: Search,
        *,
        first_line: int,
        reasons: Mapping[int, str],
    ) -> Block:
        """Translate all lines, or those before the line to stop at.

        Args:
            pairs: The lines.
            search: Translates lines, or raises `LinesError`.
            first_line: The number of the first line.
            reasons: Why lines cannot be translated, by number, where that is already known.
        """
        end = len(pairs)
        while True:
            if self._on_error == "stop" and reasons:
                end = min(reasons) - first_line
            # A bad line is replaced with an empty one, so that the lines after it keep their numbers.
            good = [
                ("", "") if line in reasons else pair for line, pair in enumerate(pairs[:end], first_line)
            ]
            try:
                found = search(
                    [source for source, _ in good],
                    prefixes=[prefix for _, prefix in good],
                    first_line=first_line,
                )
                break
            except LinesError as error:
                for line, reason in error.reasons.items():
                    reasons = {**reasons, line: f"{self._name}, {reason}"}
        if self._on_error == "copy":
            for place in (line - first_line for line in reasons):
                found[place] = [replace(found[place][0], text=pairs[place][0])]
        stops = self._on_error == "stop" and reasons
        return Block(good, found, reasons, reasons[min(reasons)] if stops else None)

    def count(self, block: Block) -> None:
        """Count the lines of a block that could not be translated."""
        if block.reasons:
            self._first_reason = self._first_reason or block.reasons[min(block.reasons)]
            self._num_bad += len(block.reasons)

    def warning(self) -> str | None:
        """The warning for the end; None if every line was translated."""
        if not self._num_bad:
            return None
        instead = "left empty" if self._on_error == "empty" else "copied"
        were = "was" if self._num_bad == 1 else "were"
        return (
            f"{counted(self._num_bad, 'line')} could not be translated and {were} {instead}. "
            f"The first: {self._first_reason}"
        )


class UnknownWords:
    """Counts the words of the input that the model does not know."""

    def __init__(self, reader: "SourceReader", *, copies: bool) -> None:
        """``copies``: whether the model copies an unknown word into its translation."""
        self._reader = reader
        self._copies = copies
        self.clear()

    def clear(self) -> None:
        """Forget the words that were counted."""
        self._num_words = 0
        self._num_unknown = 0
        self._named: list[str] = []

    def count(self, pairs: Pairs, translations: "Sequence[Sequence[Translation]]") -> None:
        """Count the words of further sources, which were translated."""
        if self._reader.tokenizer.spells_everything:
            return
        known = [
            all(token.id != UNK_ID for segment, _ in best.parts for token in segment.tokens)
            for best, *_ in translations
        ]
        num_words, unknown = self._reader.unknown_words([source for source, _ in pairs], known)
        self._num_words += num_words
        self._num_unknown += len(unknown)
        for word in unknown:
            if len(self._named) <= NUM_NAMED and word not in self._named:
                self._named.append(word)

    def warning(self) -> str | None:
        """The warning for the end; None if all words are known."""
        if not self._num_unknown:
            return None
        named = ", ".join(map(_printable, self._named[:NUM_NAMED]))
        more = " and others" if len(self._named) > NUM_NAMED else ""
        follows = (
            "They are copied into the translation." if self._copies else "Their translations are guesses."
        )
        return (
            f"the model does not know {self._num_unknown:,} of {counted(self._num_words, 'word')}: "
            f"{named}{more}. {follows}"
        )


def _printable(word: str) -> str:
    """A word of the input, short and without control characters."""
    shown = word if word.isprintable() else repr(word)[1:-1]
    return shown if len(shown) <= MOST_CHARACTERS else shown[: MOST_CHARACTERS - 3] + "..."
