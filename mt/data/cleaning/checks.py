"""Checks of every pair: training pairs without text on a side are dropped and counted, others are errors."""

from collections import Counter
from collections.abc import Iterator, Sequence

from mt.data.sources.source import Part
from mt.display import one_line
from mt.errors import DataError

EXAMPLES_KEPT = 2
_MAX_SHOWN = 60


class Dropped:
    """Counts dropped pairs by reason, and keeps the first of each as examples.

    Attributes:
        counts: Pairs for each reason; a reason completes the sentence "in 5 rows ...".
        examples: Source and target, shortened, of the first pairs for each reason.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[list[str]]] = {}

    def add(self, reason: str, src: object, tgt: object) -> None:
        """Count one pair; its sides may be anything that a corpus contains in place of text."""
        self.counts[reason] += 1
        if self.counts[reason] <= EXAMPLES_KEPT:
            sides = ["" if side is None else one_line(str(side), _MAX_SHOWN) for side in (src, tgt)]
            self.examples.setdefault(reason, []).append(sides)


def training_pairs(parts: Sequence[Part], dropped: Dropped) -> Iterator[tuple[str, str]]:
    """Yield the pairs with text on both sides; the others are counted in ``dropped``."""
    for part in parts:
        for number, src, tgt in part.pairs:
            if not isinstance(src, str) or not src.strip():
                dropped.add(_what_lacks("source", src), src, tgt)
            elif not isinstance(tgt, str) or not tgt.strip():
                dropped.add(_what_lacks("target", tgt), src, tgt)
            else:
                _check_unicode(src, tgt, part, number)
                yield src, tgt


def evaluation_pairs(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """Yield every pair, because nothing is dropped from evaluation data."""
    for part in parts:
        for number, src, tgt in part.pairs:
            if not isinstance(src, str) or not isinstance(tgt, str):
                lacks = _what_lacks("source", src) if not isinstance(src, str) else _what_lacks("target", tgt)
                raise DataError(
                    f"{part.where}, {part.unit} {number}: {lacks}. Nothing is dropped from validation and "
                    f"test data, so that scores stay comparable: correct the {part.unit} or remove it."
                )
            _check_unicode(src, tgt, part, number)
            yield src, tgt


def _what_lacks(side: str, value: object) -> str:
    if value is None:
        return f"the {side} is missing"
    return f"the {side} is empty" if isinstance(value, str) else f"the {side} is not text"


def _check_unicode(src: str, tgt: str, part: Part, number: int) -> None:
    """Refuse lone surrogates, which JSON can contain, but which cannot be written as UTF-8."""
    try:
        src.encode()
        tgt.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{part.where}, {part.unit} {number}: {error.object[error.start]!r} is half a character (a lone "
            f"surrogate): correct the {part.unit} or remove it."
        ) from None
