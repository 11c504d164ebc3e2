"""The training objective: cross-entropy with label smoothing, R-Drop, guided alignment.

Training computes the first two by `mt.transformer.kernels`; the versions here are for reading.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.data.batches.batch import Batch
from mt.special_tokens import PAD_ID
from mt.transformer import kernels
from mt.transformer.attention import mask_scores
from mt.transformer.transformer import Transformer


def smoothed_cross_entropy(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, *, bias: Tensor | None = None
) -> Tensor:
    """Project ``hidden`` ``(N, D)``, N = B * T, to logits; sum the loss over real tokens: ``()``, in nats.

    The target has ``1 - smoothing`` for the label (section 5.4) and ``smoothing`` spread evenly over all V
    ids. It is a sum, because the caller divides by the real tokens of the whole step, however many
    micro-batches it has.
    """
    log_probs = F.linear(hidden, weight, bias).log_softmax(-1)
    label_log_probs = log_probs.gather(-1, labels[:, None])[:, 0]
    losses = -(1 - smoothing) * label_log_probs - smoothing * log_probs.mean(-1)
    return losses[labels != PAD_ID].sum()


def r_drop_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float,
    *,
    alpha: float,
    bias: Tensor | None = None,
) -> Tensor:
    """Half of equation 4 of Liang et al. 2021, for two passes ``(2, N, D)``, each with its own dropout."""
    losses = [smoothed_cross_entropy(one_pass, weight, labels, smoothing, bias=bias) for one_pass in hidden]
    log_p, log_q = F.linear(hidden[:, labels != PAD_ID], weight, bias).log_softmax(-1).unbind()
    # KL(p || q) + KL(q || p).
    divergences: Tensor = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()
    return (losses[0] + losses[1] + alpha / 2 * divergences) / 2


def guided_alignment_loss(scores: Tensor, src_mask: Tensor, alignment: Tensor) -> Tensor:
    """The cross-entropy between one head's attention and the alignment, summed over the aligned tokens.

    ``scores`` ``(B, T, S)`` are those before mask ``(B, 1, 1, S)`` and softmax; ``alignment`` ``(B, T)`` is
    the source position that each label translates, negative where there is none.
    """
    scores = mask_scores(scores, src_mask[:, 0])
    # In float32 even within autocast, because it is a sum over many tokens.
    log_weights = scores.to(torch.promote_types(scores.dtype, torch.float32)).log_softmax(-1)
    aligned_log_weights = log_weights.gather(-1, alignment.clamp(min=0)[:, :, None])[:, :, 0]
    return -aligned_log_weights.masked_fill(alignment < 0, 0.0).sum()


class Objective(nn.Module):
    """The model and its loss as one module that maps a batch to the summed loss."""

    def __init__(
        self,
        model: Transformer,
        *,
        guided_alignment: float = 0.0,
        r_drop: float = 0.0,
        softmax_interval: int = 1,
    ) -> None:
        """Combine the losses; ``guided_alignment`` and ``r_drop`` (the alpha of the paper) are weights."""
        super().__init__()
        self.model = model
        self.guided_alignment = guided_alignment
        self.r_drop = r_drop
        self.softmax_interval = softmax_interval
        self.fused_losses: kernels.FusedLosses | None = None
        """Compiled by `mt.training.compiling`, or None."""

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        """The summed label-smoothed cross-entropy over the real target tokens of the batch: ``()``.

        R-Drop replaces it while training. The guided-alignment loss, averaged over the passes, adds its
        gradient but not its value, so that the result can be compared with that of other runs.
        """
        num_passes = 2 if self.r_drop and self.training else 1
        passes = batch.repeated(num_passes)
        weight: Tensor = self.model.output.weight
        bias: Tensor | None = self.model.output.bias
        labels = batch.labels.flatten()
        # The masks of the batch. Padding follows a target, so on CUDA ``causal`` is enough for it.
        src_mask, tgt_mask = kernels.masks_for_kernel(
            passes.src_mask,
            passes.tgt_ids,
            has_src_padding=passes.has_src_padding,
            dtype=kernels.product_dtype(weight),
        )
        memory = self.model.encode(passes.src_ids, src_mask)
        decoded = self.model.decode(
            passes.tgt_ids,
            memory,
            src_mask,
            tgt_mask,
            with_alignment=self.guided_alignment > 0 and passes.alignment is not None,
        )
        fused_losses = self.fused_losses
        if self.training and self.softmax_interval > 1:
            sampled = kernels.sampled_softmax(weight, labels, self.softmax_interval, bias=bias)
            weight, bias, labels = sampled
            fused_losses = None  # They are compiled for a constant number of entries.
        if num_passes == 2:
            both = decoded.hidden.view(2, len(labels), -1)
            loss = kernels.r_drop_loss(both, weight, labels, smoothing, alpha=self.r_drop, bias=bias)
        else:
            hidden = decoded.hidden.flatten(0, 1)
            loss = kernels.smoothed_cross_entropy(hidden, weight, labels, smoothing, fused_losses, bias=bias)
        if decoded.alignment_scores is not None and passes.alignment is not None:
            guided = guided_alignment_loss(decoded.alignment_scores, passes.src_mask, passes.alignment)
            weighted = self.guided_alignment / num_passes * guided
            # Its gradient only: the value added is zero.
            loss = loss + (weighted - weighted.detach())
        return loss
