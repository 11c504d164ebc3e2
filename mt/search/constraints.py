"""The rules of a search: which tokens may or must be written, by copying and by the request's constraints."""

import torch
from torch import Tensor

from mt.search.copying import Copying
from mt.search.request import CacheT, EncoderDecoder, SearchRequest
from mt.search.strategy import NO_CONSTRAINTS
from mt.special_tokens import EOS_ID, PAD_ID, UNK_ID


class ConstrainedRows:
    """The rules of a request applied to the rows of one search: first those of `Copying`, then the others."""

    def __init__(self, request: SearchRequest) -> None:
        self._copying = Copying(request)
        self._constraints, self._with_scores = request.constraints, request.with_scores
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

    def log_probs(self, model: EncoderDecoder[CacheT], newest: Tensor, cache: CacheT) -> Tensor:
        """Decode the newest tokens ``(R,)``, and apply the rules to the next ones.

        The tokens that may be written share all probability, but the next token of a given prefix keeps what
        it has in the whole vocabulary. Then only that token is left, or UNK where a word is to be copied.

        Returns:
            ``(R, V)`` in float32, minus infinity for tokens that may not be written; logits if the request
            needs no scores.
        """
        logits = self._copying.decode_step(model, newest, cache).float()
        given = self._given()
        unruled = logits if given is None else logits.clone()
        self._exclude(logits)
        if given is not None:
            logits = unruled.where(given != PAD_ID, logits)
        if self._with_scores:
            logits = logits.log_softmax(-1)
        if given is None:
            self._copying.force(logits)
            return logits
        forced = torch.full_like(logits, -torch.inf).scatter_(1, given, logits.gather(1, given))
        self._copying.force(logits)
        return forced.where(given != PAD_ID, logits)

    def _given(self) -> Tensor | None:
        """``(R, 1)``, the next token of the prefix of each row, or PAD; None after the longest."""
        if not self._active or self._history.size(1) >= self._prefixes.size(1):
            return None
        # Some versions of torch read an index for scatter_ in the order of its memory on MPS.
        return self._prefixes[:, self._history.size(1), None].contiguous()

    def _exclude(self, logits: Tensor) -> None:
        """Set the logits ``(R, V)`` of tokens that may not be written to minus infinity, in place."""
        self._copying.exclude(logits)
        if not self._active:
            return
        eos_logits, length = logits[:, EOS_ID].clone(), self._history.size(1)
        if length < self._constraints.min_length:
            logits[:, EOS_ID] = -torch.inf
        if 0 < self._constraints.no_repeat_ngram <= length:
            self._forbid_repetition(logits, self._constraints.no_repeat_ngram)
        is_stuck = logits[:, self._first_written :].isneginf().all(-1)
        logits[:, EOS_ID] = eos_logits.where(is_stuck, logits[:, EOS_ID])

    def _forbid_repetition(self, logits: Tensor, n: int) -> None:
        ngrams = self._history.unfold(1, n, 1)
        last = self._history[:, self._history.size(1) - n + 1 :]
        follows = (ngrams[:, :, :-1] == last[:, None]).all(-1) & (ngrams[:, :, -1] >= 0)
        # PAD, which is forbidden anyway, where nothing follows, because counting would wait for the device.
        logits.scatter_(1, ngrams[:, :, -1].masked_fill(~follows, PAD_ID), -torch.inf)

    def copied(self, rows: Tensor, newest: Tensor) -> Tensor:
        """Return the source positions that the tokens ``newest`` ``(n,)`` of these rows copy, or -1."""
        return self._copying.copied(rows, newest)

    def select(self, rows: Tensor, newest: Tensor) -> None:
        """Keep these rows ``(R',)``, each with its newest token ``(R',)``."""
        self._copying.select(rows, newest)
        if self._active:
            # Two UNK are different words, so each gets a different number that is no token's id.
            distinct = newest.masked_fill(newest == UNK_ID, -1 - self._history.size(1))
            self._history = torch.cat((self._history[rows], distinct[:, None]), dim=1)
            self._prefixes = self._prefixes[rows]
