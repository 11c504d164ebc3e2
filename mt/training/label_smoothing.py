"""Label-smoothed cross-entropy (Szegedy et al. 2016; Vaswani et al. 2017, section 5.4)."""

import torch
from torch import Tensor

from mt.special_tokens import PAD_ID


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Sum, over real tokens, of the cross-entropy with a smoothed target.

    The target gives each of the V tokens ``smoothing / V`` and the right one ``1 - smoothing`` more. It is
    a sum, not a mean: the caller divides by the real tokens of the whole step, so that a short micro-batch
    does not weigh more than a long one.

    Args:
        logits: ``(N, V)``.
        labels: ``(N,)``; where it is PAD, the row counts for nothing.
        smoothing: Share of probability that is spread evenly, in ``[0, 1)``.

    Returns:
        ``()``, float32, in nats.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(logits, labels, smoothing)  # type: ignore[no-untyped-call]
    return loss


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Forward and backward by hand: autograd's own would keep three more tensors as large as the logits.

    With ``lse`` the log of the summed exponentials, a row's loss is
    ``lse - (1 - smoothing) * logits[label] - smoothing * mean(logits)``.
    """

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, logits: Tensor, labels: Tensor, smoothing: float
    ) -> Tensor:
        logits = logits.float()
        log_sum_exp = logits.logsumexp(-1)
        of_label = logits.gather(-1, labels[:, None])[:, 0]
        losses = log_sum_exp - (1 - smoothing) * of_label - smoothing * logits.mean(-1)
        ctx.save_for_backward(logits, labels, log_sum_exp)
        ctx.smoothing = smoothing  # type: ignore[attr-defined]
        return losses.masked_fill(labels == PAD_ID, 0.0).sum()

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, *grad_outputs: Tensor
    ) -> tuple[Tensor, None, None]:
        logits, labels, log_sum_exp = ctx.saved_tensors  # type: ignore[attr-defined]
        smoothing: float = ctx.smoothing  # type: ignore[attr-defined]
        gradient = (logits - log_sum_exp[:, None]).exp_().sub_(smoothing / logits.size(-1))
        rows = torch.arange(labels.size(0), device=labels.device)
        gradient[rows, labels] -= 1 - smoothing
        gradient.mul_((labels != PAD_ID)[:, None] * grad_outputs[0])
        return gradient, None, None
