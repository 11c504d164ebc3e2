"""Lines that cannot be translated: still one line out for one line in, and one warning about all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from mt.errors import LinesError
from mt.wording import counted

if TYPE_CHECKING:
    from mt.inference.segments import Translation

OnError = Literal["stop", "empty", "copy"]
Pairs = Sequence[tuple[str, str]]
"""Source sentences, and how the translation of each begins, which may be empty."""
Search = Callable[..., "list[list[Translation]]"]
"""Takes sources, ``prefixes`` and ``first_line``, as `mt.inference.translator.Translator.n_best` does."""


class Block(NamedTuple):
    """Lines that were translated together."""

    pairs: Pairs
    """What was translated: for a bad line an empty one."""
    translations: "list[list[Translation]]"
    """Of each line, the best first."""
    stopped_by: str | None
    """Why the line after these cannot be translated, where that ends everything."""


class BadLines:
    """What is written for lines that cannot be translated, and how many there were."""

    def __init__(self, on_error: OnError) -> None:
        """Prepare to stop at the first one, or to write an empty line or the source for each."""
        self._on_error = on_error
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
        """Translate what can be translated; all lines, or those before the one to stop at.

        Args:
            pairs: What to translate, a line each.
            search: Gives the translations of these lines; raises `LinesError`.
            first_line: The number of the first line.
            reasons: Why lines cannot be translated, by their numbers, as far as that is known already.
        """
        end = len(pairs)
        while True:
            if self._on_error == "stop" and reasons:
                end = min(reasons) - first_line
            # An empty line in place of a bad one, so that those after it keep their numbers.
            good = [
                ("", "") if line in reasons else pair for line, pair in enumerate(pairs[:end], first_line)
            ]
            try:
                found = search(
                    [source for source, _ in good],
                    prefixes=[beginning for _, beginning in good],
                    first_line=first_line,
                )
                break
            except LinesError as error:
                reasons = {**reasons, **error.reasons}
        if not reasons:
            return Block(good, found, None)
        if self._on_error == "stop":
            return Block(good, found, reasons[min(reasons)])
        self._first_reason = self._first_reason or reasons[min(reasons)]
        self._num_bad += len(reasons)
        if self._on_error == "copy":
            for place in (line - first_line for line in reasons):
                found[place] = [replace(found[place][0], text=pairs[place][0])]
        return Block(good, found, None)

    def warning(self) -> str | None:
        """What to say at the end; None where every line was translated."""
        if not self._num_bad:
            return None
        instead = "left empty" if self._on_error == "empty" else "copied"
        were = "was" if self._num_bad == 1 else "were"
        return (
            f"{counted(self._num_bad, 'line')} could not be translated and {were} {instead}. "
            f"The first: {self._first_reason}"
        )
