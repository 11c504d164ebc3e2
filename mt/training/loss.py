"""What training minimises: the model and its loss as one module."""

import torch
from torch import Tensor, nn

from mt.data.batches.batch import Batch
from mt.special_tokens import PAD_ID
from mt.training.projected_loss import projected_loss
from mt.transformer.transformer import Transformer


def guided_alignment_loss(scores: Tensor, alignment: Tensor) -> Tensor:
    """The cross-entropy of one head's attention with the alignment, summed over the aligned words.

    Args:
        scores: ``(B, T, S)``, what the head's softmax is over.
        alignment: ``(B, T)``, the source position that each label translates; negative where there is none.

    Returns:
        ``()``, in nats.
    """
    # Within autocast too: a sum over many words.
    log_weights = scores.float().log_softmax(-1)
    of_aligned = log_weights.gather(-1, alignment.clamp(min=0)[:, :, None])[:, :, 0]
    return -of_aligned.masked_fill(alignment < 0, 0.0).sum()


def r_drop_loss(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, *, alpha: float) -> Tensor:
    """Project both passes onto the vocabulary and sum the loss over real tokens.

    Args:
        hidden: ``(2, N, D)``, what the decoder found in each pass.
        weight: ``(V, D)``, of the output projection.
        labels: ``(N,)``; where it is PAD, the token counts for nothing.
        smoothing: Share of probability that is spread evenly, in ``[0, 1)``.
        alpha: Weight of the divergence.

    Returns:
        ``()``, in nats.
    """

    def chunk_loss(logits: Tensor, labels: Tensor, needs_gradient: bool) -> Tensor:
        # Each row weighs half, for there are two of each token.
        weights = (labels != PAD_ID).to(logits.dtype) / 2
        logits.sub_(logits.amax(-1, keepdim=True))
        both = logits.exp()
        total = both.sum(-1)
        both.div_(total[:, None])
        log_total = total.log()
        of_label = logits.gather(-1, labels[:, None])[:, 0]
        losses = log_total - (1 - smoothing) * of_label - smoothing * logits.mean(-1)
        p, q = both[::2], both[1::2]
        gap = (logits[::2] - logits[1::2]).sub_((log_total[::2] - log_total[1::2])[:, None])
        divergence_of_p, divergence_of_q = (p * gap).sum(-1), -(q * gap).sum(-1)
        divergences = weights[::2] * (divergence_of_p + divergence_of_q)
        if needs_gradient:
            # The formula of the module, in place, the cross-entropy's own p added to the factor of p.
            half = alpha / 2
            torch.mul(gap, half, out=logits[::2])
            torch.mul(gap, -half, out=logits[1::2])
            for rows, own, other, divergence in (
                (logits[::2], p, q, divergence_of_p),
                (logits[1::2], q, p, divergence_of_q),
            ):
                rows.add_((1 + half * (1 - divergence))[:, None]).mul_(own).sub_(other, alpha=half)
            logits.mul_(weights[:, None])
            subtract_target(logits, labels, weights, smoothing)
        return (weights * losses).sum() + alpha / 2 * divergences.sum()

    # Token by token instead of pass by pass, so that a chunk has both passes of its tokens.
    rows = hidden.transpose(0, 1).reshape(-1, hidden.size(-1))
    return projected_loss(rows, weight, labels.repeat_interleave(2), chunk_loss)


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Project onto the vocabulary and sum, over real tokens, the cross-entropy with the smoothed target.

    It is a sum, not a mean: the caller divides by the real tokens of the whole step, so that a short
    micro-batch does not weigh more than a long one.

    Args:
        hidden: ``(N, D)``, what the decoder found.
        weight: ``(V, D)``, of the output projection.
        labels: ``(N,)``; where it is PAD, the row counts for nothing.
        smoothing: Share of probability that is spread evenly, in ``[0, 1)``.

    Returns:
        ``()``, in nats.
    """

    def chunk_loss(logits: Tensor, labels: Tensor, needs_gradient: bool) -> Tensor:
        is_real = (labels != PAD_ID).to(logits.dtype)
        of_label = logits.gather(-1, labels[:, None])[:, 0]
        mean = logits.mean(-1)
        # In place step by step: shift by the maximum, exponentiate, normalise.
        maximum = logits.amax(-1)
        logits.sub_(maximum[:, None]).exp_()
        total = logits.sum(-1)
        losses = maximum + total.log() - (1 - smoothing) * of_label - smoothing * mean
        if needs_gradient:
            logits.mul_((is_real / total)[:, None])
            subtract_target(logits, labels, is_real, smoothing)
        return (losses * is_real).sum()

    return projected_loss(hidden, weight, labels, chunk_loss)


def subtract_target(probabilities: Tensor, labels: Tensor, weights: Tensor, smoothing: float) -> None:
    """Take each row's smoothed target, times its weight, off ``(N, V)`` probabilities, in place."""
    probabilities.sub_((weights * (smoothing / probabilities.size(-1)))[:, None])
    probabilities.scatter_add_(-1, labels[:, None], (weights * (smoothing - 1))[:, None])


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
