"""Several models with the same vocabularies that write one translation together."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from mt.search.model import Cache, EncoderDecoder, TeacherForced


class Member(EncoderDecoder[Any], TeacherForced, Protocol):
    """A model that can be one of several."""


class EnsembleCache:
    """The cache of each model."""

    def __init__(self, caches: Sequence[Cache]) -> None:
        self.caches = caches

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these rows ``(R',)`` and sentences ``(B',)``, in this order, in each."""
        for cache in self.caches:
            cache.select(rows, sentences)


class EnsembleModel:
    """An `EncoderDecoder` whose probabilities are the arithmetic mean of those of its models.

    Not the geometric one, the mean of logarithms: a word that one model thinks impossible is not lost. What
    is given as logits are the logarithms of these means, which add up to 1 as they are.
    """

    def __init__(self, models: Sequence[Member], widths: Sequence[int]) -> None:
        """Put them together; ``widths`` are those of their memories."""
        self._models = models
        self._widths = list(widths)

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        """Source ``(B, S)`` -> the memories of all models side by side, ``(B, S, D1 + D2 + ...)``."""
        return torch.cat([model.encode(src_ids, src_mask) for model in self._models], dim=-1)

    def start_cache(
        self, memory: Tensor, src_mask: Tensor, max_length: int, rows_per_sentence: int = 1
    ) -> EnsembleCache:
        """An empty cache for each model, over its own part of the memory."""
        memories = torch.split(memory, self._widths, dim=-1)
        return EnsembleCache(
            [
                model.start_cache(own, src_mask, max_length, rows_per_sentence)
                for model, own in zip(self._models, memories, strict=True)
            ]
        )

    def decode_step(self, ids: Tensor, cache: EnsembleCache, alignment: list[Tensor] | None = None) -> Tensor:
        """The newest token of each row ``(R,)`` -> log-probabilities of the next ``(R, V)``.

        Into ``alignment``, where given, goes the mean of where the models look: ``(R, S)``.
        """
        looks: list[list[Tensor]] = [[] for _ in self._models]
        found = _log_mean(
            [
                model.decode_step(ids, own, None if alignment is None else look)
                for model, own, look in zip(self._models, cache.caches, looks, strict=True)
            ]
        )
        if alignment is not None:
            alignment.append(_log_mean([look[0] for look in looks]))
        return found

    def forward(self, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor) -> Tensor:
        """Sources ``(B, S)``, translations ``(B, T)`` from BOS on -> log-probabilities ``(B, T, V)``."""
        return _log_mean([model.forward(src_ids, src_mask, tgt_ids, tgt_mask) for model in self._models])


def _log_mean(logits: Sequence[Tensor]) -> Tensor:
    """Logarithm of the mean of ``softmax(logits)`` over the models, in float32."""
    log_probs = torch.stack([each.float().log_softmax(-1) for each in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))
