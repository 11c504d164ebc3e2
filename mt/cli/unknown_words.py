"""Words that the model has never seen: it translates them all the same, and one warning says so."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mt.wording import counted

if TYPE_CHECKING:
    from mt.inference.source_reader import SourceReader

NUM_NAMED = 5
MOST_CHARACTERS = 40


class UnknownWords:
    """The words of all that is translated, and which of them the model does not know."""

    def __init__(self, reader: "SourceReader", *, copies: bool) -> None:
        """Begin to count; ``copies`` says whether the model copies an unknown word into its translation."""
        self._reader = reader
        self._copies = copies
        self._num_words = 0
        self._num_unknown = 0
        self._named: list[str] = []

    def count(self, texts: Sequence[str]) -> None:
        """Count the words of further texts."""
        num_words, unknown = self._reader.unknown_words(texts)
        self._num_words += num_words
        self._num_unknown += len(unknown)
        for word in unknown:
            if len(self._named) <= NUM_NAMED and word not in self._named:
                self._named.append(word)

    def warning(self) -> str | None:
        """What to say at the end; None where all words are known."""
        if not self._num_unknown:
            return None
        named = ", ".join(map(_printable, self._named[:NUM_NAMED]))
        more = ", ..." if len(self._named) > NUM_NAMED else ""
        follows = (
            "They are copied into the translation." if self._copies else "What it writes there is a guess."
        )
        return (
            f"the model does not know {self._num_unknown:,} of {counted(self._num_words, 'word')}: "
            f"{named}{more}. {follows}"
        )


def _printable(word: str) -> str:
    """A word of the input that cannot command a terminal."""
    shown = word if word.isprintable() else repr(word)[1:-1]
    return shown if len(shown) <= MOST_CHARACTERS else shown[: MOST_CHARACTERS - 3] + "..."
