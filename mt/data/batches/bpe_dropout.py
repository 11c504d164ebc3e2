"""BPE-dropout: each epoch segments a word differently (Provilkov et al. 2020, algorithm 1)."""

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders

from mt.data.batches.pairs import EncodedSentences
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import PIECES, TO_BYTES
from mt.data.tokenizers.word_level import SPACE_MARK
from mt.display import track

# How many sentences are segmented at a time, so that intermediate arrays stay small.
_BLOCK_SIZE = 4096
# How byte-level BPE writes the bytes 80 to BF, which continue a character: here each is the second of two.
_CONTINUING = frozenset(TO_BYTES.pre_tokenize_str("".join(map(chr, range(0x80, 0xC0))))[0][0][1::2])

_Array = npt.NDArray[np.int64]


class BpeDropout:
    """Splits encoded sentences into base symbols and merges them again, skipping a share of the merges.

    All words are merged in parallel: in each round, every possible merge of a word is skipped with some
    probability, and the remaining one of lowest rank is applied. A word without any is finished. With the
    merges (l, o), (e, r) and (lo, w), in the order of their ranks, ``l o w e r`` becomes ``low er``, or
    ``lo w er`` if the last merge is skipped when no other is possible.
    """

    def __init__(self, tokenizer: Tokenizer, *, share: float, max_length: int) -> None:
        """Skip a ``share`` of merges, unless a sentence would become longer than ``max_length``."""
        merges = tokenizer.merges()
        self._share = share
        self._max_length = max_length
        self._num_ids = tokenizer.size
        left, right, self._products = np.array(merges, dtype=np.int64).reshape(-1, 3).T
        keys = self._key(left, right)
        self._ranks = np.argsort(keys)
        self._keys = keys[self._ranks]
        self._library = tokenizer.library
        # The base symbols of each id; the id itself if no merge produces it.
        spellings = [[token_id] for token_id in range(tokenizer.size)]
        for first, second, product in merges:
            spellings[product] = spellings[first] + spellings[second]
        self._spellings = EncodedSentences.of(spellings)

    def __call__(self, sentences: EncodedSentences, generator: np.random.Generator) -> EncodedSentences:
        """Segment each sentence again, in memory, with a progress bar if it takes long."""
        if not len(self._keys):
            # Nothing is ever merged, as in a vocabulary that is full of single characters.
            return sentences
        rows = np.arange(len(sentences))
        blocks = [rows[start : start + _BLOCK_SIZE] for start in range(0, len(rows), _BLOCK_SIZE)]
        segmented = []
        for block in track(blocks, "BPE-dropout", unit="sentences", total=len(rows), size=len):
            segmented.append(self._segment(sentences.select(block), generator))
        ids, lengths = zip(*((block.ids, block.lengths) for block in segmented), strict=True)
        return EncodedSentences(np.concatenate(ids), np.concatenate(lengths))

    def _segment(self, sentences: EncodedSentences, generator: np.random.Generator) -> EncodedSentences:
        """Segment all of these sentences at a time."""
        tokens = sentences.ids
        lengths = np.diff(sentences.offsets)
        spelt = self._spellings.select(tokens)
        symbols = spelt.ids.astype(np.int64)
        sentence = np.repeat(np.repeat(np.arange(len(lengths)), lengths), spelt.lengths - 1)
        begins_word = _begin_pieces(self._library, symbols) | (np.diff(sentence, prepend=-1) > 0)
        merged, positions = self._merge(symbols, np.cumsum(begins_word), generator)
        new_lengths = np.bincount(sentence[positions], minlength=len(lengths))
        new_and_old = EncodedSentences(
            np.concatenate([merged, tokens]).astype(np.int32),
            np.concatenate([new_lengths, lengths]).astype(np.int32) + np.int32(1),
        )
        is_too_long = new_lengths + 1 > self._max_length
        return new_and_old.select(np.arange(len(lengths)) + len(lengths) * is_too_long)

    def _merge(self, symbols: _Array, words: _Array, generator: np.random.Generator) -> tuple[_Array, _Array]:
        """The symbols after merging, in order, and the position that each had in ``symbols``."""
        positions = np.arange(len(symbols))
        done: list[tuple[_Array, _Array]] = []
        while len(symbols):
            possible, ranks = self._possible_merges(symbols, words)
            stays = generator.random(len(possible)) >= self._share
            made, ranks = _first_in_rank(possible[stays], ranks[stays], words)
            symbols[made] = self._products[ranks]
            goes_on = np.zeros(words[-1] + 1, dtype=bool)
            goes_on[words[made]] = True
            active = goes_on[words]
            done.append((symbols[~active], positions[~active]))
            active[made + 1] = False
            symbols = symbols[active]
            words = words[active]
            positions = positions[active]
        merged = np.concatenate([symbols for symbols, _ in done])
        merged_positions = np.concatenate([positions for _, positions in done])
        order = np.argsort(merged_positions)
        return merged[order], merged_positions[order]

    def _possible_merges(self, symbols: _Array, words: _Array) -> tuple[_Array, _Array]:
        """Positions where a symbol can be merged with the next one, and the ranks of these merges."""
        within_word = np.flatnonzero(words[:-1] == words[1:])
        keys = self._key(symbols[within_word], symbols[within_word + 1])
        index = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_merge = self._keys[index] == keys
        return within_word[is_merge], self._ranks[index[is_merge]]

    def _key(self, left: _Array, right: _Array) -> _Array:
        return left * self._num_ids + right


def _first_in_rank(positions: _Array, ranks: _Array, words: _Array) -> tuple[_Array, _Array]:
    """The merge of lowest rank of each word, the leftmost of several: positions and ranks."""
    word = words[positions]
    starts = np.flatnonzero(np.diff(word, prepend=-1) > 0)
    if not len(starts):
        return positions, ranks
    # Rank and position in one number, whose minimum over a word is the merge to apply.
    first = np.minimum.reduceat(ranks * len(ranks) + np.arange(len(ranks)), starts) % len(ranks)
    return positions[first], ranks[first]


def _begin_pieces(tokenizer: tokenizers.Tokenizer, symbols: _Array) -> npt.NDArray[np.bool_]:
    """Whether each base symbol ``(N,)`` of whole sentences begins one of `PIECES`."""
    mark_id = tokenizer.token_to_id(SPACE_MARK)
    if mark_id is not None:
        # Symbols are characters, and no merge joins letters to others: only words need to be kept apart.
        begins: npt.NDArray[np.bool_] = symbols == mark_id
        return begins
    # A letter and a punctuation mark may begin with the same byte, which merges of letters would then take.
    ids, indices = np.unique(symbols, return_inverse=True)
    names = [str(tokenizer.id_to_token(int(token_id))) for token_id in ids]
    # Only the name of a reserved id is longer. It counts as one sign, with which nothing is ever merged.
    names = [name if len(name) == 1 else "!" for name in names]
    text = decoders.ByteLevel().decode([names[index] for index in indices])
    begins_character = np.array([name not in _CONTINUING for name in names], dtype=bool)[indices]
    starts = np.array([start for _, (start, _) in PIECES.pre_tokenize_str(text)], dtype=np.int64)
    begins = np.zeros(len(symbols), dtype=bool)
    begins[np.flatnonzero(begins_character)[starts]] = True
    return begins
