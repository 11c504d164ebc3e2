"""What training minimises: the model and its loss as one module."""

from torch import Tensor, nn

from mt.data.batch import Batch
from mt.training.guided_alignment import guided_alignment_loss
from mt.training.label_smoothing import smoothed_cross_entropy
from mt.training.r_drop import r_drop_loss
from mt.transformer.transformer import Transformer


class Objective(nn.Module):
    """Batch in, summed loss out."""

    def __init__(self, model: Transformer, *, guided_alignment: float = 0.0, r_drop: float = 0.0) -> None:
        """``guided_alignment`` and ``r_drop`` are the weights of these losses, 0 for none.

        The first is for batches that come with an alignment, the second for training mode.
        """
        super().__init__()
        self.model = model
        self.guided_alignment = guided_alignment
        self.r_drop = r_drop

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        """The summed label-smoothed cross-entropy over the real target tokens of the batch: ``()``.

        With R-Drop, its loss takes the place of that. Where the batch has an alignment, the gradient is that
        of this loss and the weighted guided-alignment loss together; the value remains without the latter, to
        be compared with that of other runs.
        """
        num_passes = 2 if self.r_drop and self.training else 1
        passes = batch.repeated(num_passes)
        memory = self.model.encode(passes.src_ids, passes.src_mask)
        decoded = self.model.decode(
            passes.tgt_ids,
            memory,
            passes.src_mask,
            passes.tgt_mask,
            with_alignment=self.guided_alignment > 0 and passes.alignment is not None,
        )
        weight, labels = self.model.output.weight, batch.labels.flatten()
        if num_passes == 2:
            both = decoded.hidden.view(2, len(labels), -1)
            loss = r_drop_loss(both, weight, labels, smoothing, alpha=self.r_drop)
        else:
            loss = smoothed_cross_entropy(decoded.hidden.flatten(0, 1), weight, labels, smoothing)
        if decoded.alignment_scores is not None and passes.alignment is not None:
            guided = guided_alignment_loss(decoded.alignment_scores, passes.alignment)
            weighted = self.guided_alignment / num_passes * guided
            loss = loss + (weighted - weighted.detach())
        return loss
