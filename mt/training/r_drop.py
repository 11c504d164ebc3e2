"""R-Drop (Liang et al. 2021): two passes with different dropout are to give the same distribution.

With p and q what the two passes predict for a token, its loss is the mean of their label-smoothed
cross-entropies and, ``alpha`` times, a quarter of ``KL(p || q) + KL(q || p)``: half of the paper's equation 4
altogether, so that it compares with the loss of one pass. Both divergences together are
``sum((p - q) * (log p - log q))``, whose gradient with respect to the logits of p is

    p * (log p - log q - KL(p || q)) + p - q

and that with respect to the logits of q the same with p and q exchanged.
"""

import torch
from torch import Tensor

from mt.special_tokens import PAD_ID
from mt.training.label_smoothing import subtract_target
from mt.training.projected_loss import projected_loss


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
