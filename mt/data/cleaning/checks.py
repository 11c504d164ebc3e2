"""Checks of every pair: training pairs without text on a side are dropped and counted, others are errors."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

from mt.data.sources.source import BadRow, Part
from mt.display import counted, one_line
from mt.errors import DataError

LOG = logging.getLogger(__name__)

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


def training_pairs(
    parts: Sequence[Part], dropped: Dropped, *, skip_bad_rows: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the pairs with text on both sides, and count the others, with ``skip_bad_rows`` all of them."""
    for part in parts:
        for number, src, tgt in part.pairs:
            if bad := _bad_row(src, tgt):
                if not skip_bad_rows:
                    raise _error(part, number, bad, "or drop and count them: cleaning.skip_bad_rows=true")
                dropped.add(bad.reason, bad.detail, None)
            elif lack := _lack(src, tgt, is_empty_allowed=False):
                dropped.add(lack, src, tgt)
            else:
                yield cast("tuple[str, str]", (src, tgt))


def evaluation_pairs(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """Yield every pair but those that are empty on both sides, such as marks of paragraphs."""
    for part in parts:
        num_empty = 0
        for number, src, tgt in part.pairs:
            lack = _lack(src, tgt, is_empty_allowed=True)
            if bad := _bad_row(src, tgt) or (BadRow(lack) if lack else None):
                raise _error(
                    part, number, bad, "or remove them; so that scores stay comparable, mt drops none"
                )
            if str(src).strip() or str(tgt).strip():
                yield cast("tuple[str, str]", (src, tgt))
            else:
                num_empty += 1
        if num_empty:
            LOG.warning("%s: %s empty on both sides are left out", part.where, counted(num_empty, "pair"))


def _error(part: Part, number: int, row: BadRow, remedy: str) -> DataError:
    detail = f" ({one_line(row.detail, 2 * _MAX_SHOWN)})" if row.detail else ""
    return DataError(
        f"{part.where}, {part.unit} {number}: {row.reason}{detail}. Correct such {part.unit}s, {remedy}."
    )


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
