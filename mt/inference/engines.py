"""Engines, which find translations of token ids: one interface for all of them."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis
from mt.search.model import EncoderDecoder
from mt.search.request import SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Sampling, Strategy
from mt.threads import num_at_once


class Engine(Protocol):
    """Searches for translations of a batch of sentences."""

    @property
    def device(self) -> torch.device:
        """The device on which the tensors of a request must be."""

    @property
    def num_at_once(self) -> int:
        """How many batches should be searched at the same time, in different threads."""

    def search(
        self, request: SearchRequest, strategy: Strategy, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Find the translations of each sentence, the best first; one each unless the strategy is a beam.

        Only our own engine calls ``request.before_each_step``: the others cannot be stopped within a batch.

        Args:
            request: The batch and its rules.
            strategy: The decoding strategy.
            numbers: The number of each sentence, which together with the seed determines what is sampled.

        Raises:
            ConfigError: If this engine does not support what is requested.
            NotFiniteError: If the logits of a sentence are NaN or infinite.
        """


class OwnEngine:
    """The searches of `mt.search` over a model of ours, or an ensemble."""

    def __init__(self, model: EncoderDecoder[Any], device: torch.device) -> None:
        """``model`` must be on ``device``."""
        self.model = model
        self.device = device

    @property
    def num_at_once(self) -> int:
        """The result of `mt.threads.num_at_once`."""
        return num_at_once(self.device)

    def search(
        self, request: SearchRequest, strategy: Strategy, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Search as in `Engine`; everything is supported."""
        match strategy:
            case None:
                return [[found] for found in greedy_search(self.model, request)]
            case Beam():
                return beam_search(self.model, request, strategy)
            case Sampling():
                return [[found] for found in sample(self.model, request, strategy, numbers)]
