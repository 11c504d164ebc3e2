"""BPE-dropout: each epoch segments a word differently (Provilkov et al. 2020, algorithm 1)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mt.data.batches.pairs import EncodedSentences, Ids
from mt.data.tokenizers.subwords import begin_pieces
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.display import track

# How many sentences are segmented at a time, so that intermediate arrays stay small.
_BLOCK_SIZE = 4096

Merge = tuple[int, int, int]
"""Ids of a left and a right token, and of the token that they are merged into."""

_Array = npt.NDArray[np.int64]


class BpeDropout:
    """Splits encoded sentences into base symbols and merges them again, skipping a share of the merges.

    All words are merged in parallel: in each round, every possible merge of a word is skipped with some
    probability, and the remaining one of lowest rank is applied. A word without any is finished.
    """

    def __init__(self, tokenizer: Tokenizer, *, share: float, max_length: int) -> None:
        """Skip each merge of ``tokenizer`` with probability ``share``.

        A sentence that would become longer than ``max_length``, EOS included, stays as it is.
        """
        merges = tokenizer.merges()
        self._share = share
        self._max_length = max_length
        self._num_ids = tokenizer.size
        left, right, self._products = np.array(merges, dtype=np.int64).reshape(-1, 3).T
        keys = self._key(left, right)
        self._ranks = np.argsort(keys)
        self._keys = keys[self._ranks]
        self._library = tokenizer.library
        self._spellings = _spellings(merges, tokenizer.size)

    def __call__(self, sentences: EncodedSentences, generator: np.random.Generator) -> EncodedSentences:
        """Segment each sentence again, in memory, with a progress bar if it takes long."""
        if not len(self._keys):
            # Nothing is ever merged, as in a vocabulary that is full of single characters.
            return sentences
        ids: list[Ids] = []
        lengths: list[npt.NDArray[np.int32]] = []
        every = range(len(sentences))
        blocks = [every[start : start + _BLOCK_SIZE] for start in range(0, len(every), _BLOCK_SIZE)]
        for block_rows in track(blocks, "BPE-dropout", unit="sentences", total=len(every), size=len):
            places = sentences.offsets[block_rows.start : block_rows.stop + 1]
            block = self._cut(sentences.ids[places[0] : places[-1]], np.diff(places), generator)
            ids.append(block[0])
            lengths.append(block[1])
        return EncodedSentences.from_flat(np.concatenate(ids), np.concatenate(lengths))

    def _cut(
        self, tokens: Ids, lengths: _Array, generator: np.random.Generator
    ) -> tuple[Ids, npt.NDArray[np.int32]]:
        """Segment concatenated sentences of ``lengths`` tokens; return the new tokens and lengths."""
        of_token = np.repeat(np.arange(len(lengths)), lengths)
        symbols, token = self._spell_out(tokens)
        sentence = of_token[token]
        begins_word = begin_pieces(self._library, symbols) | (np.diff(sentence, prepend=-1) > 0)
        merged, places = self._merge(symbols, np.cumsum(begins_word), generator)
        of_merged = sentence[places]
        new_lengths = np.bincount(of_merged, minlength=len(lengths))
        stays = new_lengths + 1 > self._max_length
        ids = np.concatenate([merged[~stays[of_merged]], tokens[stays[of_token]]])
        owners = np.concatenate([of_merged[~stays[of_merged]], of_token[stays[of_token]]])
        order = np.argsort(owners, kind="stable")
        return ids[order].astype(np.int32), np.where(stays, lengths, new_lengths).astype(np.int32)

    def _spell_out(self, tokens: Ids) -> tuple[_Array, _Array]:
        """The base symbols of all tokens, concatenated, and the position of the token of each."""
        lengths = self._spellings.lengths[tokens].astype(np.int64) - 1
        starts = self._spellings.offsets[tokens]
        # Positions within each token's spelling: 0, 1, 2 ...
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        symbols = self._spellings.ids[np.repeat(starts, lengths) + within].astype(np.int64)
        return symbols, np.repeat(np.arange(len(tokens)), lengths)

    def _merge(self, symbols: _Array, words: _Array, generator: np.random.Generator) -> tuple[_Array, _Array]:
        """The symbols after merging, in order, and the position that each had in ``symbols``."""
        places = np.arange(len(symbols))
        done: list[tuple[_Array, _Array]] = []
        while len(symbols):
            possible, ranks = self._possible_merges(symbols, words)
            stays = generator.random(len(possible)) >= self._share
            made, ranks = _first_in_rank(possible[stays], ranks[stays], words)
            symbols[made] = self._products[ranks]
            goes_on = np.zeros(words[-1] + 1, dtype=bool)
            goes_on[words[made]] = True
            active = goes_on[words]
            done.append((symbols[~active], places[~active]))
            active[made + 1] = False
            symbols, words, places = symbols[active], words[active], places[active]
        merged, merged_places = (np.concatenate(arrays) for arrays in zip(*done, strict=True))
        order = np.argsort(merged_places)
        return merged[order], merged_places[order]

    def _possible_merges(self, symbols: _Array, words: _Array) -> tuple[_Array, _Array]:
        """Positions where a symbol can be merged with the next one, and the ranks of these merges."""
        within_word = np.flatnonzero(words[:-1] == words[1:])
        keys = self._key(symbols[within_word], symbols[within_word + 1])
        found = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_merge = self._keys[found] == keys
        return within_word[is_merge], self._ranks[found[is_merge]]

    def _key(self, left: _Array, right: _Array) -> _Array:
        return left * self._num_ids + right


def _spellings(merges: Sequence[Merge], num_ids: int) -> EncodedSentences:
    """The base symbols of each id; the id itself if no merge produces it."""
    spellings = [[token_id] for token_id in range(num_ids)]
    for left, right, product in merges:
        spellings[product] = spellings[left] + spellings[right]
    return EncodedSentences.of(spellings)


def _first_in_rank(places: _Array, ranks: _Array, words: _Array) -> tuple[_Array, _Array]:
    """The merge of lowest rank of each word, the leftmost of several: positions and ranks."""
    word = words[places]
    starts = np.flatnonzero(np.diff(word, prepend=-1) > 0)
    if not len(starts):
        return places, ranks
    # Rank and position in one number, whose minimum over a word is the merge to apply.
    first = np.minimum.reduceat(ranks * len(ranks) + np.arange(len(ranks)), starts) % len(ranks)
    return places[first], ranks[first]
