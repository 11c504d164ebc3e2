"""Checks of every pair: training pairs without text on a side are dropped and counted, others are errors."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

from mt.data.sources.source import BadRow, Part
from mt.data.text_form import shows_nothing
from mt.display import counted, one_line
from mt.errors import DataError

LOG = logging.getLogger(__name__)

BAD_ROWS_NAMED = 3
EXAMPLES_KEPT = 2
# More is no sentence, but may be a file that unpacks to gigabytes, or takes hours to learn subwords from.
MOST_CHARACTERS = 1_000_000
BOTH_EMPTY = "both sides are empty"
A_LIST = "a list, not one text"
_MAX_SHOWN = 60


class Dropped:
    """Counts dropped pairs by reason, and keeps the first of each, shortened, as examples.

    A reason completes the sentence "in 5 rows ...".
    """

    def __init__(self, *, takes_bad_rows: bool) -> None:
        self.takes_bad_rows = takes_bad_rows
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[list[str]]] = {}

    def add(self, reason: str, pairs: Sequence[tuple[object, object]]) -> None:
        """Count pairs, whose sides may be anything that a corpus contains in place of text."""
        self.counts[reason] += len(pairs)
        examples = self.examples.setdefault(reason, [])
        for pair in pairs[: EXAMPLES_KEPT - len(examples)]:
            examples.append(["" if side is None else one_line(str(side), _MAX_SHOWN) for side in pair])

    def most_frequent_first(self) -> dict[str, int]:
        """The counts, equal ones by their reasons."""
        return dict(sorted(self.counts.items(), key=lambda item: (-item[1], item[0])))


def checked_pairs(parts: Sequence[Part], dropped: Dropped | None = None) -> Iterator[tuple[str, str]]:
    """Yield the pairs with text on both sides, and count the others in ``dropped``.

    A row that cannot be read is an error unless ``dropped`` takes it. Without ``dropped``, for validation and
    test, everything is but an empty side; of such pairs, those are left out that are empty on both.
    """
    for part in parts:
        num_bad = num_empty = 0
        is_any_good = False
        first_bad: list[str] = []
        for number, src, tgt in part.pairs():
            fault = _fault(src, tgt, may_be_empty=dropped is None)
            if fault is None:
                is_any_good = True
                yield cast("tuple[str, str]", (src, tgt))
                continue
            reason, detail = fault if isinstance(fault, BadRow) else (fault, "")
            if fault == BOTH_EMPTY:
                num_empty += 1
            elif dropped is not None and (dropped.takes_bad_rows or isinstance(fault, str)):
                dropped.add(reason, [(src, tgt) if isinstance(fault, str) else (detail, None)])
            else:
                num_bad += 1
                if num_bad <= BAD_ROWS_NAMED:
                    detail = f" ({one_line(detail, 2 * _MAX_SHOWN)})" if detail else ""
                    first_bad.append(f"{part.unit} {number}: {reason}{detail}")
        if num_bad:
            more = f"; and {num_bad - BAD_ROWS_NAMED:,} more" if num_bad > BAD_ROWS_NAMED else ""
            remedy = f"Correct the {part.unit}s"
            if dropped is None:
                remedy += " or remove them: nothing else is dropped, so that scores stay comparable"
                if A_LIST in first_bad[0]:
                    remedy = "One reference is scored: keep one of each list, or score all with sacrebleu"
            elif is_any_good:
                remedy += ", or drop and count them: cleaning.skip_bad_rows=true"
            raise DataError(f"{part.where}, {'; '.join(first_bad)}{more}. {remedy}.")
        if num_empty:
            LOG.warning("%s: %s empty on both sides are left out", part.where, counted(num_empty, "pair"))


def _fault(src: object, tgt: object, *, may_be_empty: bool) -> BadRow | str | None:
    """What is wrong with a pair: a reason to drop it, or a `BadRow` if it cannot be read."""
    if isinstance(src, BadRow):
        return src
    for side, value in (("source", src), ("target", tgt)):
        if value is None:
            return f"the {side} is missing"
        if not isinstance(value, str):
            return f"the {side} is {A_LIST if isinstance(value, list) else 'not text'}"
        try:
            # What is ASCII can be written as UTF-8.
            value.isascii() or value.encode()
        except UnicodeEncodeError as error:
            surrogate = value[error.start]
            # Those of text_lines; JSON can contain others.
            if "\udc80" <= surrogate <= "\udcff":
                detail = f"byte 0x{ord(surrogate) - 0xDC00:02x}; convert it with iconv -f ENCODING -t UTF-8"
                return BadRow("the text is not UTF-8", detail)
            return BadRow("a character is half of one (a lone surrogate)", repr(surrogate))
        if not may_be_empty and not value.strip():
            return f"the {side} is empty"
        if len(value) > MOST_CHARACTERS:
            return f"a side has over {MOST_CHARACTERS:,} characters"
    return BOTH_EMPTY if shows_nothing(str(src)) and shows_nothing(str(tgt)) else None
