"""Copying unknown source words: which tokens search may not write, and where it must write UNK as a copy.

A source word that the model does not know can be copied. Where the alignment head attends most to such a word
that has not been copied yet, UNK is written and refers to it. Everywhere else UNK is forbidden.
"""

import torch
from torch import Tensor

from mt.search.request import CacheT, EncoderDecoder, SearchRequest
from mt.special_tokens import EOS_ID, UNK_ID


class Copying:
    """The state of copying in one search over R rows; at first, there is one for each sentence."""

    def __init__(self, request: SearchRequest) -> None:
        copyable, self._keep_unk = request.copyable, request.keep_unk
        # If there is nothing to copy, there is no extra cost.
        self._active = copyable is not None and not self._keep_unk and bool(copyable.any())
        if copyable is not None:
            self._open = copyable
            self._done = torch.zeros_like(copyable)
            given = [
                torch.tensor(positions, dtype=torch.long)
                for positions in request.prefix_copies or [()] * len(copyable)
            ]
            padded = torch.nn.utils.rnn.pad_sequence(given, batch_first=True, padding_value=-1)
            self._given = padded.to(copyable.device)
        self._positions = torch.empty(0)
        self._length = 0

    def decode_step(self, model: EncoderDecoder[CacheT], ids: Tensor, cache: CacheT) -> Tensor:
        """Return the model's logits, and remember what the alignment head attends to most."""
        logits, alignment_scores = model.decode_step(ids, cache, with_alignment=self._active)
        if alignment_scores is not None:
            # The head may attend again to a word that is already copied, but no word is copied twice.
            least = torch.finfo(alignment_scores.dtype).min
            self._positions = alignment_scores.masked_fill(self._done, least).argmax(-1)
            if self._length < self._given.size(1):
                # A prefix names the word that it copies, whatever the head attends to.
                given = self._given[:, self._length]
                self._positions = given.where(given >= 0, self._positions)
        self._length += 1
        return logits

    def exclude(self, logits: Tensor) -> None:
        """Set the logits ``(R, V)`` of tokens that are never written to minus infinity, in place."""
        unk = logits[:, UNK_ID].clone() if self._active or self._keep_unk else None
        # PAD, UNK and BOS.
        logits[:, :EOS_ID] = -torch.inf
        if unk is not None:
            # Whatever its neighbours in the batch may copy, a sentence of known words has no UNK.
            logits[:, UNK_ID] = unk if self._keep_unk else unk.where(self._open.any(-1), -torch.inf)

    def force(self, logits: Tensor) -> None:
        """Leave nothing but UNK where a word is to be copied, and everything else elsewhere, in place."""
        if self._active:
            # Any other word there would translate an unknown one, and would usually be made up.
            copies = self._open.gather(1, self._positions[:, None])
            unk = logits[:, UNK_ID].clone()
            logits.masked_fill_(copies, -torch.inf)
            logits[:, UNK_ID] = unk.where(copies[:, 0], -torch.inf)

    def copied(self, rows: Tensor, newest: Tensor) -> Tensor:
        """Return the source positions that the tokens ``newest`` ``(n,)`` of these rows copy, or -1."""
        if not self._active:
            return torch.full_like(newest, -1)
        return self._positions[rows].masked_fill(newest != UNK_ID, -1)

    def select(self, rows: Tensor, newest: Tensor) -> None:
        """Keep these rows ``(R',)``, each with its newest token ``(R',)``."""
        if self._active:
            # Rows that copy nothing have position -1, which matches no source position.
            positions = torch.arange(self._open.size(1), device=rows.device)
            is_copied = self.copied(rows, newest)[:, None] == positions
            self._open, self._given = self._open[rows], self._given[rows]
            # In a given prefix, UNK may refer to a known word, which does not count as copied.
            self._done = self._done[rows] | (is_copied & self._open)
