"""The rules of a search: which tokens may not be written next, and which one must be.

A source word that the model does not know can be copied. Where the alignment head attends most to such a word
that has not been copied yet, UNK is written and refers to it. Everywhere else UNK is forbidden.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mt.search.request import CacheT, EncoderDecoder, SearchRequest
from mt.search.strategy import NO_CONSTRAINTS
from mt.special_tokens import EOS_ID, PAD_ID, UNK_ID


class RuledRows:
    """The rules of a request applied to the R rows of a search; at first, there is one for each sentence."""

    def __init__(self, request: SearchRequest) -> None:
        """Begin with rows without tokens.

        ``_copyable`` ``(R, S)`` is True for unknown source words, ``_is_done`` for those that a row has
        copied; ``_positions`` ``(R, 1)`` is where the head attends most while the next token is chosen.
        ``_history`` ``(R, T)`` has the tokens so far, in which no two UNK are equal, and ``_prefixes`` those
        that are given, then PAD.
        """
        self._request = request
        self._constraints = request.constraints
        # Without anything to copy, and without constraints, there is no extra cost.
        self._copies = request.copyable is not None and not request.keep_unk and bool(request.copyable.any())
        self._is_constrained = self._constraints != NO_CONSTRAINTS
        self._forbidden = torch.tensor([*range(EOS_ID), *request.forbidden], device=request.src_ids.device)
        self._length = 0
        if request.copyable is not None:
            self._copyable = request.copyable
            self._is_done = torch.zeros_like(request.copyable)
        self._positions = torch.empty(0)
        self._prefixes = self._padded(self._constraints.prefixes, PAD_ID)
        self._prefix_copies = self._padded(request.prefix_copies, -1)
        self._history = self._prefixes[:, :0]

    def _padded(self, prefixes: Sequence[Sequence[int]], padding: int) -> Tensor:
        rows = [torch.tensor(ids, dtype=torch.long) for ids in prefixes or [()] * len(self._request.limits)]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
        return padded.to(self._request.src_ids.device)

    def _next(self, prefixes: Tensor) -> Tensor | None:
        """``(R, 1)``, what the prefixes have for the next token of each row; None after the longest."""
        # Some versions of torch read an index for scatter_ in the order of its memory on MPS.
        return prefixes[:, self._length, None].contiguous() if self._length < prefixes.size(1) else None

    def log_probs(self, model: EncoderDecoder[CacheT], newest: Tensor, cache: CacheT) -> Tensor:
        """Decode the newest tokens ``(R,)``, and apply the rules to the next ones.

        The tokens that may be written share all probability, but the next token of a given prefix keeps what
        it has in the whole vocabulary. Then only that token is left, or UNK where a word is to be copied.

        Returns:
            ``(R, V)`` in float32, minus infinity for tokens that may not be written; logits if the request
            needs no scores.
        """
        logits, alignment_scores = model.decode_step(newest, cache, with_alignment=self._copies)
        logits = logits.float()
        prefix = only = self._next(self._prefixes)
        unruled = logits if prefix is None else logits.clone()
        self._exclude(logits)
        if prefix is not None:
            logits = unruled.where(prefix != PAD_ID, logits)
        if self._request.with_scores:
            logits = logits.log_softmax(-1)
        if alignment_scores is not None:
            due = self._is_copied_next(alignment_scores)
            # Any other word there would translate an unknown one, and would usually be made up.
            only = torch.where(due, UNK_ID, PAD_ID)
            only = only if prefix is None else prefix.where(prefix != PAD_ID, only)
        if only is None:
            return logits
        of_only = logits.gather(1, only)
        if self._copies:
            logits[:, UNK_ID] = -torch.inf
        return logits.masked_fill_(only != PAD_ID, -torch.inf).scatter_(1, only, of_only)

    def _is_copied_next(self, alignment_scores: Tensor) -> Tensor:
        """``(R, 1)``, whether the next token copies the word that the prefix names or the head attends to."""
        # The head may attend again to a word that is already copied, but no word is copied twice.
        least = torch.finfo(alignment_scores.dtype).min
        self._positions = alignment_scores.masked_fill(self._is_done, least).argmax(-1, keepdim=True)
        if (named := self._next(self._prefix_copies)) is not None:
            self._positions = named.where(named >= 0, self._positions)
        return self._copyable.gather(1, self._positions)

    def _exclude(self, logits: Tensor) -> None:
        """Set the logits ``(R, V)`` of tokens that may not be written to minus infinity, in place."""
        unk_logits = logits[:, UNK_ID].clone()
        eos_logits = logits[:, EOS_ID].clone()
        # PAD, UNK, BOS, and what stands for no text.
        logits.index_fill_(1, self._forbidden, -torch.inf)
        if self._request.keep_unk:
            logits[:, UNK_ID] = unk_logits
        elif self._copies:
            # Whatever its neighbours in the batch may copy, a sentence of known words has no UNK.
            logits[:, UNK_ID] = unk_logits.where(self._copyable.any(-1), -torch.inf)
        if not self._is_constrained:
            return
        if self._length < self._constraints.min_length:
            logits[:, EOS_ID] = -torch.inf
        if 0 < self._constraints.no_repeat_ngram <= self._length:
            self._forbid_repetition(logits, self._constraints.no_repeat_ngram)
        # UNK is a last resort only where it may be written anywhere.
        is_stuck = logits[:, UNK_ID if self._request.keep_unk else EOS_ID :].isneginf().all(-1)
        logits[:, EOS_ID] = eos_logits.where(is_stuck, logits[:, EOS_ID])

    def _forbid_repetition(self, logits: Tensor, n: int) -> None:
        ngrams = self._history.unfold(1, n, 1)
        last = self._history[:, self._length - n + 1 :]
        follows = (ngrams[:, :, :-1] == last[:, None]).all(-1) & (ngrams[:, :, -1] >= 0)
        # PAD, which is forbidden anyway, where nothing follows, because counting would wait for the device.
        logits.scatter_(1, ngrams[:, :, -1].masked_fill(~follows, PAD_ID), -torch.inf)

    def copied(self, rows: Tensor, newest: Tensor) -> Tensor:
        """Return the source positions that the tokens ``newest`` ``(n,)`` of these rows copy, or -1."""
        if not self._copies:
            return torch.full_like(newest, -1)
        return self._positions[rows, 0].masked_fill(newest != UNK_ID, -1)

    def select(self, rows: Tensor, newest: Tensor) -> None:
        """Keep these rows ``(R',)``, each with its newest token ``(R',)``."""
        if self._copies:
            # Rows that copy nothing have position -1, which matches no source position.
            positions = torch.arange(self._copyable.size(1), device=rows.device)
            is_copied = self.copied(rows, newest)[:, None] == positions
            self._copyable = self._copyable[rows]
            self._prefix_copies = self._prefix_copies[rows]
            # In a given prefix, UNK may refer to a known word, which does not count as copied.
            self._is_done = self._is_done[rows] | (is_copied & self._copyable)
        if self._is_constrained:
            # Two UNK are different words, so each gets a different number that is no token's id.
            distinct = newest.masked_fill(newest == UNK_ID, -1 - self._length)
            self._history = torch.cat((self._history[rows], distinct[:, None]), dim=1)
            self._prefixes = self._prefixes[rows]
        self._length += 1
