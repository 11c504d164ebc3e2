"""Constraints on every translation: a minimum length, no repeated n-gram, a given prefix."""

import torch
from torch import Tensor

from mt.search.copying import Copying
from mt.search.request import NO_CONSTRAINTS, SearchRequest
from mt.special_tokens import EOS_ID, PAD_ID, UNK_ID


class ConstrainedRows:
    """The constraints of a request applied to the rows of one search, after the rules of `Copying`."""

    def __init__(self, request: SearchRequest, copying: Copying) -> None:
        self._copying = copying
        self._constraints = request.constraints
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

    def forbid(self, logits: Tensor) -> None:
        """Set the logits ``(R, V)`` of forbidden tokens to minus infinity, in place."""
        if not self._active:
            self._copying.forbid(logits)
            return
        length = self._history.size(1)
        # Some versions of torch read an index for scatter_ in the order of its memory on MPS.
        given = self._prefixes[:, length : length + 1].contiguous()
        given_logits, eos_logits = logits.gather(1, given), logits[:, EOS_ID].clone()
        self._copying.forbid(logits)
        if length < self._constraints.min_length:
            logits[:, EOS_ID] = -torch.inf
        if 0 < self._constraints.no_repeat_ngram <= length:
            self._forbid_repetition(logits, self._constraints.no_repeat_ngram)
        is_stuck = logits.isneginf().all(-1)
        logits[:, EOS_ID] = eos_logits.where(is_stuck, logits[:, EOS_ID])
        if given.size(1):
            is_given = given != PAD_ID
            logits.masked_fill_(is_given, -torch.inf)
            logits.scatter_(1, given, given_logits.where(is_given, logits.gather(1, given)))

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
