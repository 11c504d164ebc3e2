"""What training minimises: the model and its loss as one module."""

from torch import Tensor, nn

from mt.data.batch import Batch
from mt.training.guided_alignment import guided_alignment_loss
from mt.training.label_smoothing import smoothed_cross_entropy
from mt.transformer.transformer import Transformer


class Objective(nn.Module):
    """Batch in, summed loss out."""

    def __init__(self, model: Transformer, *, guided_alignment: float = 0.0) -> None:
        """``guided_alignment`` is the weight of that loss, for batches that come with an alignment."""
        super().__init__()
        self.model = model
        self.guided_alignment = guided_alignment

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        """The summed label-smoothed cross-entropy over the real target tokens of the batch: ``()``.

        Where the batch has an alignment, the gradient is that of this loss and the weighted guided-alignment
        loss together; the value remains the cross-entropy, to be compared with that of other runs.
        """
        memory = self.model.encode(batch.src_ids, batch.src_mask)
        scores: list[Tensor] | None = [] if self.guided_alignment and batch.alignment is not None else None
        hidden = self.model.decode(batch.tgt_ids, memory, batch.src_mask, batch.tgt_mask, scores)
        loss = smoothed_cross_entropy(
            hidden.flatten(0, 1), self.model.output.weight, batch.labels.flatten(), smoothing
        )
        if scores and batch.alignment is not None:
            guided = self.guided_alignment * guided_alignment_loss(scores[0], batch.alignment)
            loss = loss + (guided - guided.detach())
        return loss
