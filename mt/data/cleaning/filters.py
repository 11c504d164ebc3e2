"""The filters of the ``cleaning`` section, each applied to thousands of pairs at once."""

from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from typing import NamedTuple
from unicodedata import category, is_normalized

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mt.config.data import CleaningConfig
from mt.data.cleaning.checks import Dropped
from mt.data.text_form import TextForm

Pairs = list[tuple[str, str]]
Mask = npt.NDArray[np.bool_]

# Unicode's category Cc without tab, line feed and carriage return.
CONTROL_CHARACTER = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x{9F}]"

# Languages written in several scripts; ISO 15924 calls these two Jpan and Kore.
SEVERAL_SCRIPTS = {"Japanese": ("Han", "Hiragana", "Katakana"), "Korean": ("Hangul", "Han")}


class Filter(NamedTuple):
    """A reason to drop a pair, and the test for it.

    Attributes:
        reason: Completes the sentence "in 5 rows ...".
        is_met: Takes sources and targets as Arrow arrays of N texts and returns a mask ``(N,)``.
    """

    reason: str
    is_met: Callable[[pa.Array, pa.Array], Mask]


class Cleaner:
    """Applies the ``cleaning`` section to training pairs, and counts what it drops.

    Attributes:
        config: The ``cleaning`` section.
        dropped: The dropped pairs, each under its first reason.
        num_rewritten: Pairs whose text did not have the form of the config.
    """

    def __init__(self, config: CleaningConfig) -> None:
        self.config = config
        self.dropped = Dropped()
        self.num_rewritten = 0
        self._filters = filters(config)
        self._seen = SeenPairs()

    def clean(self, pairs: Pairs) -> Pairs:
        """The pairs that are kept, in order and in the form of the config."""
        pairs = self._rewritten(pairs)
        if self._filters and pairs:
            is_kept = np.ones(len(pairs), dtype=np.bool_)
            src, tgt = (pa.array(side, pa.large_string()) for side in zip(*pairs, strict=True))
            for reason, is_met in self._filters:
                is_dropped = is_kept & is_met(src, tgt)
                for i in np.flatnonzero(is_dropped):
                    self.dropped.add(reason, *pairs[i])
                is_kept &= ~is_dropped
            pairs = [pairs[i] for i in np.flatnonzero(is_kept)]
        if self.config.remove_duplicates:
            is_new = self._seen.add(pairs)
            for i in np.flatnonzero(~is_new):
                self.dropped.add("the pair was there before", *pairs[i])
            pairs = [pairs[i] for i in np.flatnonzero(is_new)]
        return pairs

    def _rewritten(self, pairs: Pairs) -> Pairs:
        """The pairs in the form of the config; those that change are counted, those left empty dropped."""
        form = TextForm.of(self.config)
        sides = [src for src, _ in pairs], [tgt for _, tgt in pairs]
        if all(_is_certain_to_have(form, "".join(side)) for side in sides):
            return pairs
        rewritten = list(zip(*map(form.rewrite, sides), strict=True))
        changed = [i for i, pair in enumerate(rewritten) if pair != pairs[i]]
        empty = [i for i in changed if not all(map(str.strip, rewritten[i]))]
        self.num_rewritten += len(changed) - len(empty)
        for i in reversed(empty):
            del rewritten[i]
            self.dropped.add("a side has nothing that can be seen", *pairs[i])
        return rewritten


def _is_certain_to_have(form: TextForm, text: str) -> bool:
    """Whether rewriting leaves a text as it is, of many lines in a fifth of the time of asking each."""
    if form.unescape_html and "&" in text:
        return False
    if text.isascii():
        return True
    codes = np.frombuffer(text.encode("utf-16-le"), np.uint16)
    return not _suspects(form)[codes[codes > 0x7F]].any()


@cache
def _suspects(form: TextForm) -> Mask:
    """``(65536,)`` whether a text with this 16-bit code may have to be rewritten."""
    return np.array(
        [
            category(character) in ("Cf", "Cs", "Mc", "Me", "Mn")
            or "\u1100" <= character <= "\u11ff"  # Letters that compose Hangul.
            or (form.unicode_form != "none" and not is_normalized(form.unicode_form, character))
            for character in map(chr, range(2**16))
        ]
    )


def filters(config: CleaningConfig) -> list[Filter]:
    """The filters that the config turns on, in the order in which they are applied."""
    fewest, most, ratio = config.min_characters, config.max_characters or 0, config.max_length_ratio or 0
    possible = [
        (
            config.remove_control_characters,
            "a side holds a control character",
            lambda src, tgt: _has_control_character(src) | _has_control_character(tgt),
        ),
        (
            fewest > 1,
            f"a side has under {fewest:,} characters",
            lambda src, tgt: np.minimum(_length(src), _length(tgt)) < fewest,
        ),
        (
            most > 0,
            f"a side has over {most:,} characters",
            lambda src, tgt: np.maximum(_length(src), _length(tgt)) > most,
        ),
        (
            ratio > 0,
            f"one side is over {ratio:g} times as long as the other",
            lambda src, tgt: (
                np.maximum(_length(src), _length(tgt)) > ratio * np.minimum(_length(src), _length(tgt))
            ),
        ),
        (
            config.src_script != "any",
            f"the source is not in {config.src_script} script",
            lambda src, _: is_mostly_of_other_script(src, config.src_script),
        ),
        (
            config.tgt_script != "any",
            f"the target is not in {config.tgt_script} script",
            lambda _, tgt: is_mostly_of_other_script(tgt, config.tgt_script),
        ),
        (
            config.remove_identical,
            "source and target are the same",
            lambda src, tgt: _mask(pc.equal(src, tgt)),
        ),
    ]
    return [Filter(reason, is_met) for is_on, reason, is_met in possible if is_on]


def _mask(array: pa.Array) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def _length(texts: pa.Array) -> npt.NDArray[np.int64]:
    """``(N,)`` characters of each text, without the spaces around it."""
    lengths: npt.NDArray[np.int64] = pc.utf8_length(pc.utf8_trim_whitespace(texts)).to_numpy()
    return lengths


def _has_control_character(texts: pa.Array) -> Mask:
    return _mask(pc.match_substring_regex(texts, CONTROL_CHARACTER))


def is_mostly_of_other_script(texts: pa.Array, script: str) -> Mask:
    """True where more than half of the letters are of another script; some, such as ª, belong to all."""
    own = "".join(rf"\p{{{name}}}" for name in SEVERAL_SCRIPTS.get(script, (script,)))
    other_letter = rf"[^{own}\p{{Common}}\p{{Inherited}}\P{{L}}]"
    mask = _mask(pc.match_substring_regex(texts, other_letter))
    # Counting is much slower than finding, and few texts have any letter of another script.
    suspects = texts.filter(pa.array(mask))
    num_other = pc.count_substring_regex(suspects, other_letter).to_numpy()
    num_letters = pc.count_substring_regex(suspects, r"\p{L}").to_numpy()
    mask[mask] = 2 * num_other > num_letters
    return mask


class SeenPairs:
    """The hashes of all pairs so far, in a few sorted arrays that are merged as they grow.

    In one of 370,000 corpora of ten million pairs, two different pairs have the same hash by chance.
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def add(self, pairs: Iterable[tuple[str, str]]) -> npt.NDArray[np.bool_]:
        """Add N pairs, and return a mask ``(N,)``: True where a pair is new."""
        digests = np.frombuffer(b"".join(_digest(*pair) for pair in pairs), dtype="<u8")
        hashes, first = np.unique(digests, return_index=True)
        is_new = np.ones(len(hashes), dtype=np.bool_)
        for run in self._runs:
            positions = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            is_new &= run[positions] != hashes
        self._keep(hashes[is_new])
        result = np.zeros(len(digests), dtype=np.bool_)
        result[first[is_new]] = True
        return result

    def _keep(self, run: npt.NDArray[np.uint64]) -> None:
        """Add a sorted array, merged with earlier ones until each is over twice as long as the next.

        The number of arrays to search and the number of times a hash is merged both grow as log(pairs).
        """
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort()
        if len(run):
            self._runs.append(run)


def _digest(src: str, tgt: str) -> bytes:
    encoded = src.encode()
    # The length distinguishes ("a", "bc") from ("ab", "c").
    return blake2b(b"%d:%b%b" % (len(encoded), encoded, tgt.encode()), digest_size=8).digest()
