"""Label-smoothed cross-entropy (Szegedy et al. 2016; Vaswani et al. 2017, section 5.4).

The target gives each of the V tokens of the vocabulary ``smoothing / V``, and the right one
``1 - smoothing`` more. With ``lse`` the logarithm of the summed exponentials, a token's loss is

    lse - (1 - smoothing) * logits[label] - smoothing * mean(logits)

and its gradient with respect to the logits is ``softmax(logits)`` minus that target.
"""

from torch import Tensor

from mt.special_tokens import PAD_ID
from mt.training.projected_loss import projected_loss


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
