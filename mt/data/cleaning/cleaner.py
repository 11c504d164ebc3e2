"""Cleaning: every pair is checked; training pairs are filtered, and what is dropped of them is counted."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mt.config.data import CleaningConfig
from mt.data.sources.source import BadRow, Part
from mt.data.text_form import TextForm
from mt.display import counted, one_line
from mt.errors import DataError

LOG = logging.getLogger(__name__)

Pairs = list[tuple[str, str]]
Mask = npt.NDArray[np.bool_]

EXAMPLES_KEPT = 2
# More is no sentence, but may be a file that unpacks to gigabytes, or takes hours to learn subwords from.
MOST_CHARACTERS = 1_000_000
TOO_LONG = f"a side has over {MOST_CHARACTERS:,} characters"
_MAX_SHOWN = 60
# Unicode's category Cc without tab, line feed and carriage return.
CONTROL_CHARACTER = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x{9F}]"

# Languages written in several scripts; ISO 15924 calls these two Jpan and Kore.
SEVERAL_SCRIPTS = {"Japanese": ("Han", "Hiragana", "Katakana"), "Korean": ("Hangul", "Han")}


class Dropped:
    """Counts dropped pairs by reason, as in "in 5 rows ...", and keeps the first of each, shortened."""

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
                    part, number, bad, "or remove them: none is dropped, so that scores are comparable"
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
        for side in (src, tgt):
            if isinstance(side, str) and not side.isascii():
                side.encode()
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


class Cleaner:
    """Applies the ``cleaning`` section to training pairs, and counts what it drops and rewrites."""

    def __init__(self, config: CleaningConfig) -> None:
        self.config = config
        self.dropped = Dropped()
        self.num_rewritten = 0
        # Python's own hashes are fast, have 64 bits, and are never stored.
        self._seen = set[int]()

    def clean(self, pairs: Pairs) -> Pairs:
        """The pairs that are kept, in order and in the form of the config."""
        pairs = self._rewritten(pairs)
        if pairs:
            is_kept = np.ones(len(pairs), dtype=np.bool_)
            src, tgt = (pa.array(side, pa.large_string()) for side in zip(*pairs, strict=True))
            for reason, is_met in self._filtered(src, tgt):
                is_dropped = is_kept & is_met
                for i in np.flatnonzero(is_dropped):
                    self.dropped.add(reason, *pairs[i])
                is_kept &= ~is_dropped
            pairs = [pairs[i] for i in np.flatnonzero(is_kept)]
        if self.config.remove_duplicates:
            pairs = [pair for pair in pairs if self._is_new(pair)]
        return pairs

    def _is_new(self, pair: tuple[str, str]) -> bool:
        num_known = len(self._seen)
        self._seen.add(hash(pair))
        if len(self._seen) == num_known:
            self.dropped.add("the pair was there before", *pair)
        return len(self._seen) > num_known

    def _rewritten(self, pairs: Pairs) -> Pairs:
        """The pairs in the form of the config; those that change are counted, those left empty dropped."""
        form = TextForm.of(self.config)
        sides = [src for src, _ in pairs], [tgt for _, tgt in pairs]
        rewritten = list(zip(*map(form.rewrite, sides), strict=True))
        changed = [i for i, pair in enumerate(rewritten) if pair != pairs[i]]
        empty = [i for i in changed if not all(map(str.strip, rewritten[i]))]
        self.num_rewritten += len(changed) - len(empty)
        for i in reversed(empty):
            del rewritten[i]
            self.dropped.add("a side has nothing that can be seen", *pairs[i])
        return rewritten

    def _filtered(self, src: pa.Array, tgt: pa.Array) -> Iterator[tuple[str, Mask]]:
        """The reasons to drop a pair that the config turns on, each with a mask ``(N,)`` of the pairs."""
        config = self.config
        if config.remove_control_characters:
            found = (_mask(pc.match_substring_regex(side, CONTROL_CHARACTER)) for side in (src, tgt))
            yield "a side holds a control character", np.any([*found], axis=0)
        shorter, longer = np.sort([_length(src), _length(tgt)], axis=0)
        if (fewest := config.min_characters) > 1:
            yield f"a side has under {fewest:,} characters", shorter < fewest
        if (most := config.max_characters) is not None:
            yield f"a side has over {most:,} characters", longer > most
        if (ratio := config.max_length_ratio) is not None:
            yield f"one side is over {ratio:g} times as long as the other", longer > ratio * shorter
        for side, texts, script in (("source", src, config.src_script), ("target", tgt, config.tgt_script)):
            if script != "any":
                yield f"the {side} is not in {script} script", is_mostly_of_other_script(texts, script)
        if config.remove_identical:
            yield "source and target are the same", _mask(pc.equal(src, tgt))


def _mask(array: pa.Array) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def _length(texts: pa.Array) -> npt.NDArray[np.int64]:
    """``(N,)`` characters of each text, without the spaces around it."""
    lengths: npt.NDArray[np.int64] = pc.utf8_length(pc.utf8_trim_whitespace(texts)).to_numpy()
    return lengths


def is_mostly_of_other_script(texts: pa.Array, script: str) -> Mask:
    """True where more than half of the letters are of another script; some, such as ª, belong to all."""
    own = "".join(rf"\p{{{name}}}" for name in SEVERAL_SCRIPTS.get(script, (script,)))
    other_letter = rf"[^{own}\p{{Common}}\p{{Inherited}}\P{{L}}]"
    num_other, num_letters = (pc.count_substring_regex(texts, regex) for regex in (other_letter, r"\p{L}"))
    return _mask(pc.greater(pc.multiply(num_other, 2), num_letters))
