"""Word-level tokenizing that loses nothing: every rule stands in the tokenizer.json, none in Python.

Characters are of three kinds, and a blank in the text is written down only where it is not what one expects:

* P, punctuation and symbols: each a token of its own. It carries the mark ￭ on the side where it touches its
  neighbour; between two of them only the second does.
* K, letters of scripts without spaces (Chinese, Japanese, Thai ...): each a token, with its own vowel signs.
  Where no P is beside, a blank before or after it is the token ▁.
* All else, in the longest runs: words. They carry no mark, so that a word has one id wherever it stands.

``She said: "don't!"`` is ``She said ￭: "￭ don ￭'￭ t ￭! ￭"``, and ``他 说hello`` is ``他 ▁ 说 hello``.
"""

import re
from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from mt.special_tokens import BOS, EOS, PAD, UNK

P = r"\p{P}\p{S}"
# ー and its narrow twin belong to both kana, and so, to Unicode, to no script.
K = rf"[\p{{Han}}\p{{Hiragana}}\p{{Katakana}}ーｰ\p{{Thai}}\p{{Lao}}\p{{Khmer}}\p{{Myanmar}}]&&[^{P}]"

# What the text itself holds of our marks, and of the escape (a character for private use), is escaped.
ESCAPE = "\ue000"
ESCAPED = {ESCAPE: ESCAPE + "a", "￭": ESCAPE + "b", "▁": ESCAPE + "c"}

# Where a K may be: the blocks from Thai on, but for those of Latin, Greek, punctuation and symbols.
MAY_HOLD_K = re.compile("[\u0e00-\u1dff\u2e80-\U0010ffff]")
CHUNKS_AT_A_TIME = 500_000


def word_level(vocabulary: dict[str, int]) -> Tokenizer:
    """Build the tokenizer of a vocabulary.

    The special tokens are words of the vocabulary like others, not "added tokens" that the library would look
    for in the text: as < and > are split off, no text can be encoded to one of them.
    """
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNK))
    tokenizer.normalizer = _normalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.CharDelimiterSplit(" ")
    tokenizer.decoder = _decoder()
    return tokenizer


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the tokens that `word_level` would split ``texts`` into.

    The library's trainer gives the same counts several times more slowly, because it normalises each line.
    Where no K is about, the rules do not look beyond a blank, so that each distinct stretch between blanks is
    normalised once.

    Raises:
        UnicodeEncodeError: If a text holds half of a surrogate pair.
    """
    normalizer = _normalizer()
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()

    def count_chunks() -> None:
        for chunk, frequency in chunks.items():
            for word in normalizer.normalize_str(chunk).split(" "):
                words[word] += frequency
        chunks.clear()

    for text in texts:
        if MAY_HOLD_K.search(text):
            words.update(normalizer.normalize_str(text).split(" "))
        else:
            chunks.update(text.split())
        if len(chunks) > CHUNKS_AT_A_TIME:
            count_chunks()
    count_chunks()
    del words[""]
    return words


def _normalizer() -> normalizers.Normalizer:
    """Normalise spacing, and put blanks and marks between what are to be tokens."""

    def replace(pattern: str, content: str) -> normalizers.Normalizer:
        return normalizers.Replace(Regex(pattern), content)

    return normalizers.Sequence(
        [
            # White space as str.split understands it: Unicode's, and the four separators of ASCII.
            replace(r"[^\S ]|[\x{1C}-\x{1F}]", " "),
            replace(r"\A +| (?= |\z)", ""),
            *(normalizers.Replace(mark, escaped) for mark, escaped in ESCAPED.items()),
            replace(rf" (?:(?<=[{K}] )(?=[^{P}])|(?<=[^{P}] )(?=[{K}]))", " ▁ "),
            replace(rf"(?=[{P}])(?<=[^ ])", " ￭"),
            replace(rf"(?<=[{P}])(?=[^ {P}])", "￭ "),
            replace(rf"(?<=[{K}])(?=[^ {P}])(?![\p{{M}}&&[{K}]])|(?=[{K}])(?!\p{{M}})(?<=[^ {P}])", " "),
        ]
    )


def _decoder() -> decoders.Decoder:
    """Undo what `_normalizer` did but for the spacing; PAD, BOS and EOS are dropped, UNK is shown."""

    def replace(pattern: str, content: str) -> decoders.Decoder:
        return decoders.Replace(Regex(pattern), content)

    return decoders.Sequence(
        [
            # Blanks between the tokens, but none before a mark.
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
