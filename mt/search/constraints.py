"""Constraints on every translation: a minimum length, no repeated n-gram, a given prefix."""

import torch
from torch import Tensor

from mt.search.copying import Copying
from mt.search.request import SearchRequest
from mt.search.strategy import NO_CONSTRAINTS
from mt.special_tokens import EOS_ID, PAD_ID, UNK_ID


class ConstrainedRows:
    """The constraints of a request applied to the rows of one search, after the rules of `Copying`."""

    def __init__(self, request: SearchRequest, copying: Copying) -> None:
        self._copying = copying
        self._constraints = request.constraints
        # UNK is a last resort only where it may be written anywhere.
        self._first_written = UNK_ID if request.keep_unk else EOS_ID
        # Without constraints, there is no extra cost.
        self._active = request.constraints != NO_CONSTRAINTS
        if self._active:
            prefixes = [
                torch.tensor(ids, dtype=torch.long)
                for ids in request.constraints.prefixes or [()] * len(request.limits)
            ]
            padded = torch.nn.utils.rnn.pad_sequence(prefixes, batch_first=True, padding_value=PAD_ID)
            self._prefixes = padded.to(request.src_ids.device)
            self._history = self._prefixes[:, :0]

    def exclude(self, logits: Tensor) -> None:
        """Set the logits ``(R, V)`` of tokens that share no probability to minus infinity, in place.

        These are all that the rules forbid, but none where a prefix is given.
        """
        if not self._active:
            self._copying.exclude(logits)
            return
        length = self._history.size(1)
        given, eos_logits = self._given(), logits[:, EOS_ID].clone()
        before = logits.clone() if given.size(1) else logits
        self._copying.exclude(logits)
        if length < self._constraints.min_length:
            logits[:, EOS_ID] = -torch.inf
        if 0 < self._constraints.no_repeat_ngram <= length:
            self._forbid_repetition(logits, self._constraints.no_repeat_ngram)
        is_stuck = logits[:, self._first_written :].isneginf().all(-1)
        logits[:, EOS_ID] = eos_logits.where(is_stuck, logits[:, EOS_ID])
        if given.size(1):
            logits.copy_(before.where(given != PAD_ID, logits))

    def force(self, logits: Tensor) -> None:
        """Then leave nothing but the token that must be written, where that is a copy or given, in place."""
        given = self._given() if self._active else None
        if given is None or not given.size(1):
            self._copying.force(logits)
            return
        given_logits, is_given = logits.gather(1, given), given != PAD_ID
        self._copying.force(logits)
        logits.masked_fill_(is_given, -torch.inf)
        logits.scatter_(1, given, given_logits.where(is_given, logits.gather(1, given)))

    def _given(self) -> Tensor:
        """``(R, 1)``, the next token of the prefix of each row, or PAD; ``(R, 0)`` after the longest."""
        length = self._history.size(1)
        # Some versions of torch read an index for scatter_ in the order of its memory on MPS.
        return self._prefixes[:, length : length + 1].contiguous()

    def _forbid_repetition(self, logits: Tensor, n: int) -> None:
        ngrams = self._history.unfold(1, n, 1)
        last = self._history[:, self._history.size(1) - n + 1 :]
        follows = (ngrams[:, :, :-1] == last[:, None]).all(-1) & (ngrams[:, :, -1] >= 0)
        # PAD, which is forbidden anyway, where nothing follows, because counting would wait for the device.
        logits.scatter_(1, ngrams[:, :, -1].masked_fill(~follows, PAD_ID), -torch.inf)

    def select(self, rows: Tensor, newest: Tensor) -> None:
        """Keep these rows ``(R',)``, each with its newest token ``(R',)``."""
        self._copying.select(rows, newest)
        if self._active:
            # Two UNK are different words, so each gets a different number that is no token's id.
            distinct = newest.masked_fill(newest == UNK_ID, -1 - self._history.size(1))
            self._history = torch.cat((self._history[rows], distinct[:, None]), dim=1)
            self._prefixes = self._prefixes[rows]
