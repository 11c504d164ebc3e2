"""An exponential moving average of the weights, which translates better than the latest weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from mt.transformer.transformer import Transformer
from mt.transformer.weights import load_weights


class MovingAverage:
    """After the n-th update, ``average = decay_n * average + (1 - decay_n) * weights``.

    ``decay_n = min(decay, (1 + n) / (10 + n))``, so that the untrained first weights are soon forgotten
    (Polyak and Juditsky 1992).
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.num_updates: int | Tensor = 0
        """On the device, where the device decides which steps to skip."""
        self._model = model
        self._decay = decay
        self._average = _copies(model.weights())

    @torch.no_grad()
    def update(self, found_inf: Tensor | None = None) -> None:
        """Include the weights of an optimizer step, unless ``found_inf`` says that it was skipped."""
        averages, weights = list(self._average.values()), list(self._model.weights().values())
        if found_inf is None:
            self.num_updates = int(self.num_updates) + 1
            torch._foreach_lerp_(averages, weights, max(1 - self._decay, 9 / (10 + self.num_updates)))
            return
        is_good = found_inf == 0
        self.num_updates = self.num_updates + is_good
        share = torch.where(is_good, (9 / (10 + self.num_updates)).clamp(min=1 - self._decay), 0.0)
        # Each by itself: torch takes one share for all of them only from the host, which would wait for it.
        torch._foreach_lerp_(averages, weights, [share] * len(weights))

    @contextmanager
    def in_the_model(self) -> Iterator[None]:
        """Inside the ``with`` block the model has the averaged weights, afterwards its own again."""
        own = self.trained_weights()
        load_weights(self._model, self._average)
        try:
            yield
        finally:
            load_weights(self._model, own)

    def trained_weights(self) -> dict[str, Tensor]:
        """A copy of the model's own weights; not to be called within `in_the_model`."""
        return _copies(self._model.weights())

    def restore(
        self, num_updates: int, average: Mapping[str, Tensor], trained_weights: Mapping[str, Tensor]
    ) -> None:
        """Continue from this average after ``num_updates`` updates."""
        load_weights(self._model, average)
        self._average = _copies(self._model.weights())
        load_weights(self._model, trained_weights)
        self.num_updates = num_updates


def _copies(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in weights.items()}
