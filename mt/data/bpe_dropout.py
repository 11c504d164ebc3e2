"""BPE-dropout: the same word, cut otherwise each time it is seen (Provilkov et al. 2020, algorithm 1)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mt.data.dataset import EncodedSentences, Ids

Merge = tuple[int, int, int]
"""Ids of a left and a right token, and of the two as one."""

_Array = npt.NDArray[np.int64]


class BpeDropout:
    """Encoded sentences in; the same sentences, spelt out and merged again but for a share of merges, out.

    All words are merged side by side: in each round, every possible merge of a word is skipped with some
    probability, and the first in rank of those that are not is made. A word that has none left is done.
    """

    def __init__(
        self, merges: Sequence[Merge], blank: int, *, num_ids: int, share: float, max_length: int
    ) -> None:
        """Take the merges in the order of their rank.

        Args:
            merges: None may go across the beginning of a word.
            blank: A base symbol that stands only at the beginning of a word.
            num_ids: Entries in the vocabulary.
            share: Probability that a merge is skipped.
            max_length: A sentence that would become longer, one end mark counted, stays as it is.
        """
        self._share = share
        self._max_length = max_length
        self._num_ids = num_ids
        left, right, self._products = np.array(merges, dtype=np.int64).reshape(-1, 3).T
        keys = self._key(left, right)
        self._ranks = np.argsort(keys)
        self._keys = keys[self._ranks]
        self._blank = blank
        self._spellings = _spellings(merges, num_ids)

    def __call__(self, sentences: Sequence[Ids], generator: np.random.Generator) -> list[Ids]:
        """Each sentence cut anew, as the generator draws."""
        symbols, sentence = self._spell_out(sentences)
        begins_word = (symbols == self._blank) | (np.diff(sentence, prepend=-1) > 0)
        merged, places = self._merge(symbols, np.cumsum(begins_word), generator)
        ends = np.cumsum(np.bincount(sentence[places], minlength=len(sentences)))
        cut = np.split(merged.astype(np.int32), ends[:-1])
        return [
            old if len(new) + 1 > self._max_length else new for old, new in zip(sentences, cut, strict=True)
        ]

    def _spell_out(self, sentences: Sequence[Ids]) -> tuple[_Array, _Array]:
        """Base symbols of all sentences, end to end, and the sentence that each stands in."""
        tokens = np.concatenate(sentences)
        lengths = self._spellings.lengths[tokens].astype(np.int64) - 1
        starts = self._spellings.offsets[tokens]
        # Within each token's spelling 0, 1, 2 ...
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        symbols = self._spellings.ids[np.repeat(starts, lengths) + within].astype(np.int64)
        sentence = np.repeat(np.arange(len(sentences)), [len(ids) for ids in sentences])
        return symbols, np.repeat(sentence, lengths)

    def _merge(self, symbols: _Array, words: _Array, generator: np.random.Generator) -> tuple[_Array, _Array]:
        """The symbols that are left, in their order, and the place that each had in ``symbols``."""
        places = np.arange(len(symbols))
        done: list[tuple[_Array, _Array]] = []
        while len(symbols):
            possible, ranks = self._possible_merges(symbols, words)
            stays = generator.random(len(possible)) >= self._share
            possible, ranks = possible[stays], ranks[stays]
            # By word, then by rank, then from left to right; the first of each word is made.
            order = np.lexsort((ranks, words[possible]))
            is_first = np.diff(words[possible][order], prepend=-1) > 0
            made = order[is_first]
            symbols[possible[made]] = self._products[ranks[made]]
            goes_on = np.zeros(words[-1] + 1, dtype=bool)
            goes_on[words[possible[made]]] = True
            active = goes_on[words]
            done.append((symbols[~active], places[~active]))
            active[possible[made] + 1] = False
            symbols, words, places = symbols[active], words[active], places[active]
        merged, merged_places = (np.concatenate(arrays) for arrays in zip(*done, strict=True))
        order = np.argsort(merged_places)
        return merged[order], merged_places[order]

    def _possible_merges(self, symbols: _Array, words: _Array) -> tuple[_Array, _Array]:
        """Where a symbol can be merged with the one after it, and the ranks of these merges."""
        within_word = np.flatnonzero(words[:-1] == words[1:])
        keys = self._key(symbols[within_word], symbols[within_word + 1])
        found = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_merge = self._keys[found] == keys
        return within_word[is_merge], self._ranks[found[is_merge]]

    def _key(self, left: _Array, right: _Array) -> _Array:
        return left * self._num_ids + right


def _spellings(merges: Sequence[Merge], num_ids: int) -> EncodedSentences:
    """The base symbols that each id is made of; of itself, if no merge makes it."""
    spellings = [[token_id] for token_id in range(num_ids)]
    for left, right, product in merges:
        spellings[product] = spellings[left] + spellings[right]
    return EncodedSentences.of(spellings)
