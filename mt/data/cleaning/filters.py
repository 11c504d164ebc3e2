"""The filters of the ``cleaning`` section, each applied to thousands of pairs at once."""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import compress

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


class Cleaner:
    """Applies the ``cleaning`` section to training pairs, and counts what it drops."""

    def __init__(self, config: CleaningConfig) -> None:
        self.config = config
        self.dropped = Dropped(takes_bad_rows=config.skip_bad_rows)
        self._seen = set[bytes]()
        """64-bit digests of all pairs so far: about 90 MB for a million."""

    def clean(self, pairs: Pairs) -> Pairs:
        """The pairs that are kept, in order and in the form of the config."""
        form = TextForm.of(self.config)
        sides = [form.rewrite(pair[side] for pair in pairs) for side in (0, 1)]
        pairs = list(zip(*sides, strict=True))
        src, tgt = (pa.array(side, pa.large_string()) for side in sides)
        is_kept = np.ones(len(pairs), dtype=np.bool_)
        for reason, is_dropped in filters(self.config, src, tgt):
            self._drop(pairs, is_kept & is_dropped, reason)
            is_kept &= ~is_dropped
        pairs = list(compress(pairs, is_kept))
        if self.config.remove_duplicates:
            is_new = np.array([self._is_new(*pair) for pair in pairs], dtype=np.bool_)
            self._drop(pairs, ~is_new, "the pair was there before")
            pairs = list(compress(pairs, is_new))
        return pairs

    def _is_new(self, src: str, tgt: str) -> bool:
        num_seen, encoded = len(self._seen), src.encode()
        # The length distinguishes ("a", "bc") from ("ab", "c").
        digest = blake2b(b"%d:%b%b" % (len(encoded), encoded, tgt.encode()), digest_size=8).digest()
        self._seen.add(digest)
        return len(self._seen) > num_seen

    def _drop(self, pairs: Pairs, is_dropped: Mask, reason: str) -> None:
        if is_dropped.any():
            self.dropped.add(reason, list(compress(pairs, is_dropped)))


def filters(config: CleaningConfig, src: pa.Array, tgt: pa.Array) -> Iterator[tuple[str, Mask]]:
    """The filters of the config, and that of empty texts: a reason, and a mask ``(N,)`` of pairs to drop."""
    yield "a side has nothing that can be seen", np.array(pc.or_(pc.equal(src, ""), pc.equal(tgt, "")))
    fewest, most, ratio = config.min_characters, config.max_characters, config.max_length_ratio
    if config.remove_control_characters:
        has_control = [np.array(pc.match_substring_regex(side, CONTROL_CHARACTER)) for side in (src, tgt)]
        yield "a side holds a control character", has_control[0] | has_control[1]
    if fewest > 1 or most or ratio:
        lengths = [pc.utf8_length(pc.utf8_trim_whitespace(side)).to_numpy() for side in (src, tgt)]
        shorter, longer = np.minimum(*lengths), np.maximum(*lengths)
        if fewest > 1:
            yield f"a side has under {fewest:,} characters", shorter < fewest
        if most:
            yield f"a side has over {most:,} characters", longer > most
        if ratio:
            yield f"one side is over {ratio:g} times as long as the other", longer > ratio * shorter
    for name, side, script in (("source", src, config.src_script), ("target", tgt, config.tgt_script)):
        if script != "any":
            yield f"the {name} is not in {script} script", is_mostly_of_other_script(side, script)
    if config.remove_identical:
        yield "source and target are the same", np.array(pc.equal(src, tgt))


def is_mostly_of_other_script(texts: pa.Array, script: str) -> Mask:
    """True where more than half of the letters are of another script; some, such as ª, belong to all."""
    own = "".join(rf"\p{{{name}}}" for name in SEVERAL_SCRIPTS.get(script, (script,)))
    other_letter = rf"[^{own}\p{{Common}}\p{{Inherited}}\P{{L}}]"
    mask = np.array(pc.match_substring_regex(texts, other_letter))
    # Counting is much slower than finding, and few texts have any letter of another script.
    suspects = texts.filter(pa.array(mask))
    num_other = pc.count_substring_regex(suspects, other_letter).to_numpy()
    num_letters = pc.count_substring_regex(suspects, r"\p{L}").to_numpy()
    mask[mask] = 2 * num_other > num_letters
    return mask
