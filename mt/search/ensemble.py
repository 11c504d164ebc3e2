"""Ensembles: several models with the same vocabularies that translate together."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from mt.search.request import Cache, EncoderDecoder, TeacherForced


class Member(EncoderDecoder[Any], TeacherForced, Protocol):
    """A model that can be part of an ensemble."""


class EnsembleCache:
    """The caches of all models of an ensemble."""

    def __init__(self, caches: Sequence[Cache]) -> None:
        self.caches = caches

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep these rows ``(R',)`` and sentences ``(B',)``, in this order, in each cache."""
        for cache in self.caches:
            cache.select(rows, sentences)


class EnsembleModel:
    """An `EncoderDecoder` whose probabilities are the arithmetic mean of those of its models.

    The mean is arithmetic rather than geometric (of logarithms), so a word is not lost when one model gives
    it no probability. The logits are the logarithms of these means, and are therefore already normalised.
    """

    def __init__(self, models: Sequence[Member], widths: Sequence[int]) -> None:
        """Combine ``models``, whose memories have these ``widths`` (D of each)."""
        self.models = models
        self._widths = list(widths)

    def encode(self, src_ids: Tensor, src_mask: Tensor) -> Tensor:
        """Encode the source ``(B, S)`` with each model; the memories become ``(B, S, D1 + D2 + ...)``."""
        return torch.cat([model.encode(src_ids, src_mask) for model in self.models], dim=-1)

    def start_cache(self, memory: Tensor, src_mask: Tensor) -> EnsembleCache:
        """Return a cache without tokens for each model, for its own part of the memory."""
        members = zip(self.models, torch.split(memory, self._widths, dim=-1), strict=True)
        return EnsembleCache([model.start_cache(own, src_mask) for model, own in members])

    def decode_step(
        self, ids: Tensor, cache: EnsembleCache, *, with_alignment: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Decode the newest token of each row ``(R,)`` with each model; the caches grow by it."""
        members = zip(self.models, cache.caches, strict=True)
        decoded = [model.decode_step(ids, own, with_alignment=with_alignment) for model, own in members]
        logits, scores = zip(*decoded, strict=True)
        # The logarithm of the mean attention of the alignment heads.
        return _log_mean(logits), _log_mean(scores) if with_alignment else None

    def forward(self, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor) -> Tensor:
        """Sources ``(B, S)`` and translations ``(B, T)`` with BOS -> log-probabilities ``(B, T, V)``."""
        return _log_mean([model.forward(src_ids, src_mask, tgt_ids, tgt_mask) for model in self.models])


def _log_mean(logits: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean of ``softmax(logits)`` over the models, in float32."""
    log_probs = torch.stack([of_model.float().log_softmax(-1) for of_model in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))
