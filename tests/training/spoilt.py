"""A loss that goes wrong when told to."""

from torch import Tensor

from mt.data.batches.batch import Batch
from mt.training.loss import Objective


class Spoilt(Objective):
    """Adds a constant to the loss, which leaves the gradient alone, and multiplies the gradient alone."""

    added = 0.0
    gradient_factor = 1.0

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        loss = super().forward(batch, smoothing) + self.added
        loss.register_hook(lambda gradient: gradient * self.gradient_factor)  # type: ignore[no-untyped-call]
        return loss
