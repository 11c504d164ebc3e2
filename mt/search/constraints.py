"""What a user asks of every translation: a least length, no n-gram twice, a given beginning."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt.search.copying import Copying
from mt.special_tokens import EOS_ID, PAD_ID, UNK_ID


@dataclass(frozen=True)
class Constraints:
    """The wishes; each is off as it stands here."""

    min_length: int = 0
    """The fewest tokens of a translation, EOS not counted. It ends earlier where nothing else is left."""
    no_repeat_ngram: int = 0
    """So many tokens never follow each other twice; 0 lets them. No unknown word repeats another."""
    prefixes: Sequence[Sequence[int]] = ()
    """The ids that each sentence of the batch begins with, whatever the other rules say; empty gives none."""


NO_CONSTRAINTS = Constraints()


class ConstrainedRows:
    """The rows of one search under these constraints, on top of what `Copying` lets them write."""

    def __init__(
        self, constraints: Constraints, copying: Copying, num_sentences: int, device: torch.device
    ) -> None:
        """Begin a search."""
        self._copying = copying
        # Nothing is paid for where nothing is asked.
        self._active = constraints != NO_CONSTRAINTS
        self._constraints = constraints
        if self._active:
            prefixes = [
                torch.tensor(ids, dtype=torch.long) for ids in constraints.prefixes or [()] * num_sentences
            ]
            padded = torch.nn.utils.rnn.pad_sequence(prefixes, batch_first=True, padding_value=PAD_ID)
            self._prefixes = padded.to(device).repeat_interleave(copying.rows_per_sentence, dim=0)
            self._history = self._prefixes[:, :0]

    def forbid(self, logits: Tensor) -> None:
        """Give minus infinity to what may not follow: ``(R, V)``, changed in place."""
        if not self._active:
            self._copying.forbid(logits)
            return
        length = self._history.size(1)
        given = self._prefixes[:, length : length + 1]
        as_given, end = logits.gather(1, given), logits[:, EOS_ID].clone()
        self._copying.forbid(logits)
        if length < self._constraints.min_length:
            logits[:, EOS_ID] = -torch.inf
        if 0 < self._constraints.no_repeat_ngram <= length:
            self._forbid_repetition(logits, self._constraints.no_repeat_ngram)
        is_stuck = logits.isneginf().all(-1)
        logits[:, EOS_ID] = end.where(is_stuck, logits[:, EOS_ID])
        if given.size(1):
            is_given = given != PAD_ID
            logits.masked_fill_(is_given, -torch.inf)
            logits.scatter_(1, given, as_given.where(is_given, logits.gather(1, given)))

    def _forbid_repetition(self, logits: Tensor, n: int) -> None:
        ngrams = self._history.unfold(1, n, 1)
        last = self._history[:, self._history.size(1) - n + 1 :]
        follows = (ngrams[:, :, :-1] == last[:, None]).all(-1) & (ngrams[:, :, -1] >= 0)
        rows, places = follows.nonzero(as_tuple=True)
        logits[rows, ngrams[rows, places, -1]] = -torch.inf

    def select(self, rows: Tensor, newest: Tensor) -> None:
        """Go on with these rows ``(R',)``, each with its newest token ``(R',)``."""
        self._copying.select(rows, newest)
        if self._active:
            # Two unknown words are two words: each gets a number of its own, that no token has.
            told_apart = newest.masked_fill(newest == UNK_ID, -1 - self._history.size(1))
            self._history = torch.cat((self._history[rows], told_apart[:, None]), dim=1)
            self._prefixes = self._prefixes[rows]
