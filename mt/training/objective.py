"""What training minimises: the model and its loss as one module."""

from torch import Tensor, nn

from mt.data.batch import Batch
from mt.training.label_smoothing import smoothed_cross_entropy
from mt.transformer.transformer import Transformer


class Objective(nn.Module):
    """Batch in, summed loss out."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        """The summed label-smoothed cross-entropy over the real target tokens of the batch: ``()``."""
        memory = self.model.encode(batch.src_ids, batch.src_mask)
        hidden = self.model.decode(batch.tgt_ids, memory, batch.src_mask, batch.tgt_mask)
        return smoothed_cross_entropy(
            hidden.flatten(0, 1), self.model.output.weight, batch.labels.flatten(), smoothing
        )
