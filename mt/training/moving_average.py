"""An exponential moving average of the weights, which translates better than the last of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from mt.transformer.transformer import Transformer


class MovingAverage:
    """The mean of all weights so far, in which older ones count for less (Polyak and Juditsky 1992).

    After the n-th update ``average = decay_n * average + (1 - decay_n) * weights`` with
    ``decay_n = min(decay, (1 + n) / (10 + n))``, so that the first weights, which know nothing, are soon
    forgotten.
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.num_updates = 0
        self._model = model
        self._decay = decay
        self._other = _copies(model.weights())

    @torch.no_grad()
    def update(self) -> None:
        """Take in the model's weights; call it after each step that changed them."""
        self.num_updates += 1
        decay = min(self._decay, (1 + self.num_updates) / (10 + self.num_updates))
        torch._foreach_lerp_(list(self._other.values()), list(self._model.weights().values()), 1 - decay)

    @contextmanager
    def in_the_model(self) -> Iterator[None]:
        """Let the model have the average for the length of a ``with``; then its own weights again."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def trained_weights(self) -> dict[str, Tensor]:
        """A copy of the model's own weights, which the average is taken of; not within `in_the_model`."""
        return _copies(self._model.weights())

    def restore(
        self, num_updates: int, average: Mapping[str, Tensor], trained_weights: Mapping[str, Tensor]
    ) -> None:
        """Go on where this many updates had led to this average.

        Raises:
            ValueError: If names or shapes are not those of the model.
        """
        self._model.load_weights(average)
        self._other = _copies(self._model.weights())
        self._model.load_weights(trained_weights)
        self.num_updates = num_updates

    def _swap(self) -> None:
        own = _copies(self._model.weights())
        self._model.load_weights(self._other)
        self._other = own


def _copies(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in weights.items()}
