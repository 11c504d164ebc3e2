"""Checks of every pair: training pairs without text on a side are dropped and counted, others are errors."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

from mt.data.sources.source import BadRow, Part
from mt.display import counted, one_line
from mt.errors import DataError

LOG = logging.getLogger(__name__)

BAD_ROWS_NAMED = 3
EXAMPLES_KEPT = 2
# More is no sentence, but may be a file that unpacks to gigabytes, or takes hours to learn subwords from.
MOST_CHARACTERS = 1_000_000
TOO_LONG = f"a side has over {MOST_CHARACTERS:,} characters"
_MAX_SHOWN = 60


class Dropped:
    """Counts dropped pairs by reason, and keeps the first of each, shortened, as examples.

    A reason completes the sentence "in 5 rows ...".
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


class _BadRows:
    """The rows of a part that cannot be read: how many there are, and the first three."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._count = 0
        self._first: list[str] = []

    def add(self, number: int, row: BadRow) -> None:
        self._count += 1
        if len(self._first) < BAD_ROWS_NAMED:
            detail = f" ({one_line(row.detail, 2 * _MAX_SHOWN)})" if row.detail else ""
            self._first.append(f"{self._part.unit} {number}: {row.reason}{detail}")

    def check(self, remedy: str) -> None:
        """Raise `DataError` if there are any."""
        if self._count:
            more = f"; and {self._count - len(self._first):,} more" if self._count > len(self._first) else ""
            raise DataError(f"{self._part.where}, {'; '.join(self._first)}{more}. {remedy}")


def training_pairs(
    parts: Sequence[Part], dropped: Dropped, *, skip_bad_rows: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the pairs with text on both sides, and count the others, with ``skip_bad_rows`` all of them."""
    for part in parts:
        bad_rows = _BadRows(part)
        for number, src, tgt in part.pairs:
            if bad := _bad_row(src, tgt):
                if skip_bad_rows:
                    dropped.add(bad.reason, bad.detail, None)
                else:
                    bad_rows.add(number, bad)
            elif lack := _lack(src, tgt, is_empty_allowed=False):
                dropped.add(lack, src, tgt)
            else:
                yield cast("tuple[str, str]", (src, tgt))
        bad_rows.check(f"Correct the {part.unit}s, or drop and count them: cleaning.skip_bad_rows=true.")


def evaluation_pairs(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """Yield every pair but those that are empty on both sides, such as marks of paragraphs."""
    for part in parts:
        bad_rows, num_empty = _BadRows(part), 0
        for number, src, tgt in part.pairs:
            lack = _lack(src, tgt, is_empty_allowed=True)
            if bad := _bad_row(src, tgt) or (BadRow(lack) if lack else None):
                bad_rows.add(number, bad)
            elif str(src).strip() or str(tgt).strip():
                yield cast("tuple[str, str]", (src, tgt))
            else:
                num_empty += 1
        bad_rows.check(
            "Nothing is dropped from validation and test data, so that scores stay comparable: correct the "
            f"{part.unit}s or remove them."
        )
        if num_empty:
            LOG.warning("%s: %s empty on both sides are left out", part.where, counted(num_empty, "pair"))


def _bad_row(src: object, tgt: object) -> BadRow | None:
    """The row if it could not be read, or if it cannot be written as UTF-8."""
    if isinstance(src, BadRow):
        return src
    try:
        # What is ASCII is known to be.
        if isinstance(src, str) and not src.isascii():
            src.encode()
        if isinstance(tgt, str) and not tgt.isascii():
            tgt.encode()
    except UnicodeEncodeError as error:
        surrogate = ord(error.object[error.start])
        # Those of text_lines; JSON can contain others.
        if 0xDC80 <= surrogate <= 0xDCFF:
            detail = f"byte 0x{surrogate - 0xDC00:02x}; convert it with iconv -f ENCODING -t UTF-8"
            return BadRow("the text is not UTF-8", detail)
        return BadRow("a character is half of one (a lone surrogate)", repr(chr(surrogate)))
    return None


def _lack(src: object, tgt: object, *, is_empty_allowed: bool) -> str | None:
    """What is wrong with a side that can be read, if anything."""
    for side, value in (("source", src), ("target", tgt)):
        if value is None:
            return f"the {side} is missing"
        if not isinstance(value, str):
            return f"the {side} is {'a list, not one text' if isinstance(value, list) else 'not text'}"
        if not (is_empty_allowed or value.strip()):
            return f"the {side} is empty"
        if len(value) > MOST_CHARACTERS:
            return TOO_LONG
    return None
