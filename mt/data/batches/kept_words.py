"""Words that stay: in a share of pairs, a word and its translation become UNK, whatever pieces they are of.

The model learns to write UNK where it translates UNK. What must stay when it translates, such as a name or a
placeholder, is read as UNK, and put in where UNK is written (`mt.search.rules`).
"""

import unicodedata
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from mt.data.batches.alignment import NONE, Integers
from mt.data.batches.pairs import EncodedPairs, EncodedSentences, Ids
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.word_level import SPACE_BYTE, SPACE_MARK
from mt.sides import Sides
from mt.special_tokens import UNK_ID

Flags = npt.NDArray[np.bool_]


class Pieces(NamedTuple):
    """Of each entry of a vocabulary:"""

    begins_word: Flags
    """Whether it is the first of a word, with the space before it."""
    is_sign: Flags
    """Whether it is punctuation or a symbol, which is a word of its own, or stands for no text."""
    is_space: Flags
    """Whether it is a space alone, which is no word."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """Those of a tokenizer's vocabulary."""
        entries = tokenizer.tokens(range(tokenizer.size))
        begins = [tokenizer.has_words or entry.startswith((SPACE_MARK, SPACE_BYTE)) for entry in entries]
        signs = np.array([_is_sign(tokenizer.library.decode([token_id])) for token_id in range(len(entries))])
        signs[[*tokenizer.not_text, UNK_ID]] = True
        spaces = np.zeros_like(signs)
        spaces[[*tokenizer.spaces]] = True
        return cls(np.array(begins), signs, spaces)

    def words(self, ids: Ids) -> tuple[Integers, Flags]:
        """The number of the word of each token of a sentence, and which words have a space before them."""
        signs = self.is_sign[ids]
        starts = self.begins_word[ids] | signs
        starts[:1] = True
        starts[1:] |= signs[:-1]
        numbers = starts.cumsum() - 1
        has_letters = np.bincount(numbers, ~signs & ~self.is_space[ids]) > 0
        return numbers, self.begins_word[ids][starts] & has_letters


def _is_sign(text: str) -> bool:
    """Whether a text has punctuation and symbols only; a byte that is no character is none."""
    signs = text.strip().strip("\ufffd")
    return bool(signs) and all(unicodedata.category(sign)[0] in "PS" for sign in signs)


class KeptWords(NamedTuple):
    """Keeps a word in a ``share`` of the pairs, two in a share of these, and so on; others in each epoch."""

    share: float
    pieces: Sides[Pieces]

    def __call__(self, pairs: EncodedPairs, generator: np.random.Generator) -> EncodedPairs:
        """The pairs of an epoch, which are aligned."""
        assert pairs.src_positions is not None
        counts = generator.geometric(1 - self.share, size=len(pairs)) - 1
        links = EncodedSentences(pairs.src_positions.astype(np.int32), pairs.tgt.lengths)
        rows = np.flatnonzero(counts).tolist()
        kept: list[tuple[Ids, Ids, Ids]] = []
        for row in rows:
            sides = Sides(pairs.src[row], pairs.tgt[row])
            kept.append(self._keep(sides, links[row], int(counts[row]), generator))
        if not rows:
            return pairs
        src, tgt, positions = zip(*kept, strict=True)
        src_positions = links.replaced(rows, positions).ids.astype(np.int16)
        changed = replace(pairs, src=pairs.src.replaced(rows, src), tgt=pairs.tgt.replaced(rows, tgt))
        return replace(changed, src_positions=src_positions)

    def _keep(
        self, ids: Sides[Ids], links: Ids, count: int, generator: np.random.Generator
    ) -> tuple[Ids, Ids, Ids]:
        """The ids and the links of a pair in which words are kept that are aligned with one word only."""
        src_words, src_may_stay = self.pieces.src.words(ids.src)
        tgt_words, tgt_may_stay = self.pieces.tgt.words(ids.tgt)
        src, tgt = _linked_once(links, src_words, tgt_words)
        candidates = np.flatnonzero(src_may_stay[src] & tgt_may_stay[tgt])
        if not len(candidates):
            return ids.src, ids.tgt, links
        # The rarer of two is of more pieces, or has the larger id.
        rarity = np.bincount(src_words) * len(self.pieces.src.is_sign)
        np.maximum.at(rarity, src_words, rarity[src_words] + ids.src)
        drawn = candidates[generator.integers(len(candidates), size=(count, 2))]
        rarer = rarity[src[drawn]].argmax(1)
        chosen = drawn[np.arange(count), rarer]
        kept_src, src_positions = _with_unk(ids.src, src_words, src[chosen])
        kept_tgt, tgt_positions = _with_unk(ids.tgt, tgt_words, tgt[chosen])
        is_left = np.diff(tgt_positions, prepend=-1) > 0
        moved = np.where(links == NONE, NONE, src_positions[links])
        return kept_src, kept_tgt, moved[is_left].astype(np.int32)


def _linked_once(links: Ids, src_words: Integers, tgt_words: Integers) -> tuple[Integers, Integers]:
    """The words of each side that are aligned with each other, and with no other word."""
    linked = np.flatnonzero(links != NONE)
    both = np.stack([src_words[links[linked]], tgt_words[linked]], axis=1)
    src, tgt = np.unique(both, axis=0).T
    src_counts = np.bincount(src, minlength=1)
    tgt_counts = np.bincount(tgt, minlength=1)
    is_once = (src_counts[src] == 1) & (tgt_counts[tgt] == 1)
    return src[is_once], tgt[is_once]


def _with_unk(ids: Ids, words: Integers, chosen: Integers) -> tuple[Ids, Integers]:
    """The ids with one UNK for each of the chosen words, and where each token is then."""
    is_chosen = np.isin(words, chosen)
    is_first = np.diff(words, prepend=-1) > 0
    is_left = is_first | ~is_chosen
    replaced = np.where(is_chosen, UNK_ID, ids).astype(np.int32)
    return replaced[is_left], is_left.cumsum() - 1
