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
        # In place, and as (tokens, passes, V): the two passes of a token are neighbours.
        log_p = logits.sub_(logits.logsumexp(-1, keepdim=True))
        of_label = log_p.gather(-1, labels[:, None])[:, 0]
        losses = (smoothing - 1) * of_label - smoothing * log_p.mean(-1)
        p = log_p.exp()
        first, second = p.view(-1, 2, p.size(-1)).unbind(1)
        gap = log_p[::2] - log_p[1::2]
        # KL of the first pass from the second, and of the second from the first.
        divergences = torch.stack([(first * gap).sum(-1), -(second * gap).sum(-1)], -1)
        loss = (weights * losses).sum() + alpha / 2 * (weights.view(-1, 2) * divergences).sum()
        if needs_gradient:
            both = torch.stack([gap, -gap], 1).sub_(divergences[:, :, None]).mul_(p.view(-1, 2, p.size(-1)))
            apart = first - second
            both[:, 0] += apart
            both[:, 1] -= apart
            torch.addcmul(p, both.view_as(p), p.new_tensor(alpha / 2), out=logits)
            logits.mul_(weights[:, None])
            subtract_target(logits, labels, weights, smoothing)
        return loss

    # Token by token instead of pass by pass, so that a chunk has both passes of its tokens.
    rows = hidden.transpose(0, 1).reshape(-1, hidden.size(-1))
    return projected_loss(rows, weight, labels.repeat_interleave(2), chunk_loss)
