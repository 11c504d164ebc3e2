"""Batches: sentence pairs that are padded, shifted and masked.

In all of `data` a sentence is its raw ids, with neither BOS nor EOS, which are added here. The *length* of a
sentence is the number of its ids plus one, EOS or BOS: the positions that it takes in `src_ids`, in `tgt_ids`
and in `labels`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from mt.data.batches.pairs import EncodedSentences
from mt.masks import padding_mask, target_mask
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID

Sentences = Sequence[Collection[int]] | EncodedSentences


@dataclass(frozen=True)
class Batch:
    """Sentence pairs as tensors for the model; `collate` has an example."""

    src_ids: Tensor
    """``(B, S)``; each row ends with EOS, then PAD."""
    src_mask: Tensor
    """``(B, 1, 1, S)``; True where the encoder and the cross-attention may attend."""
    tgt_ids: Tensor
    """``(B, T)``, the decoder's input; each row begins with BOS."""
    labels: Tensor
    """``(B, T)``, the tokens to predict; each row ends with EOS, then PAD."""
    num_target_tokens: int
    """Labels that are not PAD."""
    alignment: Tensor | None = None
    """``(B, T)``, the source position that each label translates, or -1."""
    has_src_padding: bool = True
    """False lets attention do without a source mask."""
    dropout_seed: int | None = None
    """The seed that training sets in torch before it computes the batch."""

    @property
    def tgt_mask(self) -> Tensor:
        """``(B, 1, T, T)``; True where the decoder may attend: to real tokens, none in the future."""
        return target_mask(self.tgt_ids)

    @property
    def num_positions(self) -> int:
        """Positions of source and target, including padding; memory use is proportional to it."""
        return self.src_ids.numel() + self.tgt_ids.numel()

    def to(self, device: torch.device | str) -> Self:
        """Return the batch on ``device``; a copy from pinned memory to CUDA is asynchronous."""
        # CUDA keeps pinned memory until it is copied; other memory may be freed while it is still being read.
        is_cuda = torch.device(device).type == "cuda"
        return self._map(lambda tensor: tensor.to(device, non_blocking=is_cuda and tensor.is_pinned()))

    def pin_memory(self) -> Self:
        """Return the batch in page-locked memory, from which CUDA copies asynchronously."""
        return self._map(Tensor.pin_memory)

    def repeated(self, times: int) -> Self:
        """All rows, repeated ``times`` times as a whole, for R-Drop."""
        if times == 1:
            return self
        rows = self._map(lambda tensor: torch.cat([tensor] * times))
        return replace(rows, num_target_tokens=times * self.num_target_tokens)

    def without_labels(self) -> Self:
        """The batch with nothing to predict, for a process that has none of its own: its gradient is zero."""
        return replace(
            self,
            labels=torch.full_like(self.labels, PAD_ID),
            num_target_tokens=0,
            alignment=None if self.alignment is None else torch.full_like(self.alignment, -1),
        )

    def halves(self) -> tuple[Self, Self]:
        """The first half of its rows and the rest, as views; it must have two rows or more."""
        middle = len(self.labels) // 2
        return self._rows(slice(None, middle)), self._rows(slice(middle, None))

    def _rows(self, rows: slice) -> Self:
        part = self._map(lambda tensor: tensor[rows])
        return replace(part, num_target_tokens=int((part.labels != PAD_ID).sum()))

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in tensors.items()}
        return replace(self, **changed)


def pad(sentences: Sentences, *, first: int | None = None, last: int | None = None) -> Tensor:
    """Pad one or more sentences with PAD on the right, each between ``first`` and ``last``: ``(B, T)``."""
    sentences = _encoded(sentences)
    lengths = torch.from_numpy(sentences.lengths)[:, None] - 1
    start = int(first is not None)
    width = start + int(lengths.max()) + int(last is not None)
    padded = torch.full((len(sentences), width), PAD_ID)
    position = torch.arange(width) - start
    # A boolean mask selects row by row, which is the order of the concatenated ids.
    padded[(position >= 0) & (position < lengths)] = torch.from_numpy(sentences.ids).long()
    if first is not None:
        padded[:, 0] = first
    if last is not None:
        padded[position == lengths] = last
    return padded


def collate(src: Sentences, tgt: Sentences, src_positions: Sentences | None = None) -> Batch:
    """Pad, shift and mask sentence pairs: at each position, the decoder reads a token and predicts the next.

    The pairs ``[5, 6] [8]`` and ``[7] [9, 10, 11]`` become

        src_ids          tgt_ids               labels
        5  6    EOS      BOS  8    PAD  PAD    8  EOS  PAD  PAD
        7  EOS  PAD      BOS  9    10   11     9  10   11   EOS

    ``src_positions`` has for each target token the position of the source token that it translates, or -1.
    """
    src = _encoded(src)
    tgt = _encoded(tgt)
    src_ids = pad(src, last=EOS_ID)
    alignment = None
    if src_positions is not None:
        # EOS is aligned with EOS. `pad` fills with 0, so positions count from 1 in it: padding becomes -1.
        rows = []
        for ids, of_sentence in zip(src, src_positions, strict=True):
            row = [position + 1 for position in of_sentence]
            row.append(len(ids) + 1)
            rows.append(row)
        alignment = pad(rows) - 1
    return Batch(
        src_ids=src_ids,
        src_mask=padding_mask(src_ids),
        tgt_ids=pad(tgt, first=BOS_ID),
        labels=pad(tgt, last=EOS_ID),
        num_target_tokens=int(tgt.lengths.sum()),
        alignment=alignment,
        has_src_padding=bool((src_ids == PAD_ID).any()),
    )


def _encoded(sentences: Sentences) -> EncodedSentences:
    return sentences if isinstance(sentences, EncodedSentences) else EncodedSentences.of(sentences)
