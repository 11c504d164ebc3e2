"""Lossless word-level tokenization: all rules are in the tokenizer.json, none in Python.

There are three kinds of characters, and a space in the text is encoded only where it is unexpected:

* P, punctuation and symbols: each is a token. It has the mark ￭ on the side where it touches its neighbour;
  between two of them only the second has it.
* K, letters of unsegmented scripts (Chinese, Japanese, Thai ...): each is a token, with its vowel signs.
  Unless there is a P on the other side, a space before or after it is the token ▁.
* Everything else, in the longest runs: words. They have no mark, so that a word has the same id everywhere.

``She said: "don't!"`` is ``She said ￭: "￭ don ￭'￭ t ￭! ￭"``, and ``他 说hello`` is ``他 ▁ 说 hello``.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from mt.special_tokens import BOS, EOS, PAD, UNK

P = r"\p{P}\p{S}"
# ー and its half-width form belong to both kana, so that Unicode assigns them to no script.
K = rf"[\p{{Han}}\p{{Hiragana}}\p{{Katakana}}ーｰ\p{{Thai}}\p{{Lao}}\p{{Khmer}}\p{{Myanmar}}]&&[^{P}]"
# Vowel signs and the like.
SIGNS = rf"\p{{M}}&&[{K}]"

SPACE_MARK = "▁"
# The printable character that byte-level BPE has for the byte of the space.
SPACE_BYTE = "Ġ"

# If the text itself contains our marks or the escape (a private-use character), they are escaped.
ESCAPE = "\ue000"
ESCAPED = {ESCAPE: ESCAPE + "a", "￭": ESCAPE + "b", "▁": ESCAPE + "c"}
# Takes the place, among the tokens, of text that is not decoded. No token contains it.
PLACEHOLDER = ESCAPE + "d"

# Blocks that may contain a K: those from Thai on, without Latin, Greek, punctuation and symbols.
MAY_HOLD_K = re.compile("[\u0e00-\u1dff\u2e80-\U0010ffff]")


def word_level(vocabulary: dict[str, int], *, lowercase: bool = False) -> Tokenizer:
    """Build the tokenizer for a vocabulary, which begins with the special tokens."""
    # They are ordinary words: because < and > are split off, no text is encoded to one of them.
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    tokenizer.normalizer = _normalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    tokenizer.decoder = _decoder()
    return tokenizer


def count_words(texts: Iterable[str], *, lowercase: bool = False) -> Counter[str]:
    """Count the tokens that `word_level` would split ``texts`` into, faster than the library."""
    normalize = _normalizer(lowercase=lowercase).normalize_str

    @lru_cache(2**16)
    def tokens(chunk: str) -> list[str]:
        return normalize(chunk).split(" ")

    # Without any K the rules do not look beyond a space.
    chunks = (chunk for text in texts for chunk in ([text] if MAY_HOLD_K.search(text) else text.split()))
    words = Counter(chain.from_iterable(map(tokens, chunks)))
    del words[""]
    return words


def _normalizer(*, lowercase: bool) -> normalizers.Normalizer:
    """Normalise spacing, and put spaces and marks between tokens."""
    rules = {
        rf" (?:(?<=[{K}] )(?=[^{P}])|(?<=[^{P}] )(?=[{K}]))": " ▁ ",
        rf"(?=[{P}])(?<=[^ ])": " ￭",
        rf"(?<=[{P}])(?=[^ {P}])": "￭ ",
        rf"(?<=[{K}])(?=[^ {P}])(?![{SIGNS}])|(?=[{K}])(?!\p{{M}})(?<=[^ {P}])": " ",
    }
    steps = [normalizers.Replace(mark, escaped) for mark, escaped in ESCAPED.items()]
    steps += [normalizers.Replace(Regex(pattern), content) for pattern, content in rules.items()]
    return after_spacing(steps, lowercase=lowercase)


def after_spacing(steps: Iterable[normalizers.Normalizer], *, lowercase: bool) -> normalizers.Normalizer:
    """Single spaces in place of all white space of `str.split`, none at the ends; then these steps."""
    return normalizers.Sequence(
        [
            *([normalizers.Lowercase()] if lowercase else []),
            # Unicode's white space, and the four separators of ASCII.
            normalizers.Replace(Regex(r"[^\S ]|[\x{1C}-\x{1F}]"), " "),
            normalizers.Replace(Regex(r"\A +| (?= |\z)"), ""),
            *steps,
        ]
    )


def _decoder() -> decoders.Decoder:
    """Undo `_normalizer` except for the spacing; PAD, BOS and EOS are dropped, but not UNK."""

    def replace(pattern: str, content: str) -> decoders.Decoder:
        return decoders.Replace(Regex(pattern), content)

    return decoders.Sequence(
        [
            # Spaces between the tokens, but none before a mark.
            decoders.WordPiece(prefix="￭", cleanup=False),
            decoders.Fuse(),
            replace(f" ?(?:{PAD}|{BOS}|{EOS})", ""),
            replace(rf" (?:(?<=[{K}] )(?=[^{P}])|(?<=[^{P}] )(?=[{K}]))", ""),
            replace("￭ ?", ""),
            replace("(?: ?▁ ?)+", " "),
            replace(r"\A +| +\z", ""),
            *(decoders.Replace(escaped, mark) for mark, escaped in reversed(ESCAPED.items())),
        ]
    )
