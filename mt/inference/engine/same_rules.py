"""Slightly changed versions of our models, which make a comparison with another library fair."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mt.search.ensemble import EnsembleStep, Member
from mt.search.model import StepOutput
from mt.special_tokens import EOS_ID


class _Changed(ABC):
    """A model whose logits in search are changed; everything else is unchanged."""

    def __init__(self, model: Member) -> None:
        self._model = model

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        """As `mt.search.model.EncoderDecoder.encode`."""
        return self._model.encode(src_ids, src_mask)

    def start_cache(self, memory: Tensor, src_mask: Tensor, max_length: int) -> Any:
        """As `mt.search.model.EncoderDecoder.start_cache`."""
        return self._model.start_cache(memory, src_mask, max_length)

    def decode_step(self, ids: Tensor, cache: Any, *, with_alignment: bool = False) -> StepOutput:
        """As `mt.search.model.EncoderDecoder.decode_step`, with changed logits."""
        step = self._model.decode_step(ids, cache, with_alignment=with_alignment)
        return EnsembleStep(self._change(step.logits.float()), step.alignment_scores)

    def forward(self, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor) -> Tensor:
        """As `mt.search.model.TeacherForced.forward`."""
        return self._model.forward(src_ids, src_mask, tgt_ids, tgt_mask)

    @abstractmethod
    def _change(self, logits: Tensor) -> Tensor: ...


class Steered(_Changed):
    """A model whose logits are changed a little, from one output of search towards another."""

    def __init__(self, model: Member, away: Sequence[int], towards: Sequence[int], size: float) -> None:
        """Raise the token of ``towards`` at each step by ``size``, and lower that of ``away``."""
        super().__init__(model)
        self._away, self._towards = [*away, EOS_ID], [*towards, EOS_ID]
        self._size = size
        self._step = 0

    def start_cache(self, memory: Tensor, src_mask: Tensor, max_length: int) -> Any:
        """As `mt.search.model.EncoderDecoder.start_cache`; this begins a search."""
        self._step = 0
        return super().start_cache(memory, src_mask, max_length)

    def _change(self, logits: Tensor) -> Tensor:
        for ids, change in ((self._away, -self._size), (self._towards, self._size)):
            if self._step < len(ids):
                logits[:, ids[self._step]] += change
        self._step += 1
        return logits


class Nudged(_Changed):
    """A model whose logits are changed at random, as by rounding."""

    def __init__(self, model: Member, size: float, seed: int) -> None:
        """Change each logit by at most ``size``."""
        super().__init__(model)
        self._size = size
        self._generator = torch.Generator().manual_seed(seed)

    def _change(self, logits: Tensor) -> Tensor:
        return logits + self._size * (2 * torch.rand(logits.shape, generator=self._generator) - 1)
