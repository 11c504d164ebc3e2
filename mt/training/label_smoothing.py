"""Label-smoothed cross-entropy (Szegedy et al. 2016; Vaswani et al. 2017, section 5.4).

The target gives each of the V tokens of the vocabulary ``smoothing / V``, and the right one
``1 - smoothing`` more. With ``lse`` the logarithm of the summed exponentials, a token's loss is

    lse - (1 - smoothing) * logits[label] - smoothing * mean(logits)

and its gradient with respect to the logits is ``softmax(logits)`` minus that target.
"""

from typing import Any

import torch
from torch import Tensor

from mt.special_tokens import PAD_ID

# 16 MB of logits, allocated once; with 2**25 a step took 12 % longer, with 2**20 it made no difference.
_CHUNK_ELEMENTS = 2**22
# A GPU wants few large products; 512 MB of logits in float32 are little to it.
_CHUNK_ELEMENTS_ELSEWHERE = 2**27


def smoothed_cross_entropy(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Project onto the vocabulary and sum, over real tokens, the cross-entropy with the smoothed target.

    It is a sum, not a mean: the caller divides by the real tokens of the whole step, so that a short
    micro-batch does not weigh more than a long one. The logits of all tokens at once would be the largest
    tensor of all, so they are made, used for loss and gradient, and forgotten a chunk at a time.

    Args:
        hidden: ``(N, D)``, what the decoder found.
        weight: ``(V, D)``, of the output projection.
        labels: ``(N,)``; where it is PAD, the row counts for nothing.
        smoothing: Share of probability that is spread evenly, in ``[0, 1)``.

    Returns:
        ``()``, in nats.
    """
    # Asked here, for inside of `forward` gradients are always off, and a parameter always wants one.
    with_gradient = torch.is_grad_enabled()
    loss: Tensor = _ProjectedLoss.apply(hidden, weight, labels, smoothing, with_gradient)  # type: ignore[no-untyped-call]
    return loss


class _ProjectedLoss(torch.autograd.Function):
    """The gradient is a by-product of the loss: it is computed on the way and only scaled in `backward`."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, with_gradient: bool
    ) -> Tensor:
        if torch.is_autocast_enabled(hidden.device.type):
            dtype = torch.get_autocast_dtype(hidden.device.type)
            hidden, weight = hidden.to(dtype), weight.to(dtype)
        needs_gradient = with_gradient and any(ctx.needs_input_grad)
        if needs_gradient:
            hidden_gradient = torch.empty_like(hidden)
            # In float32 whatever the products are in: over many chunks, bf16 would lose what is small.
            weight_gradient = torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
        vocabulary_size = weight.size(0)
        chunk_elements = _CHUNK_ELEMENTS if hidden.device.type == "cpu" else _CHUNK_ELEMENTS_ELSEWHERE
        rows = max(1, chunk_elements // vocabulary_size)
        buffer = hidden.new_empty(min(rows, len(hidden)), vocabulary_size)
        loss = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        for start in range(0, len(hidden), rows):
            chunk, chunk_labels = hidden[start : start + rows], labels[start : start + rows]
            logits = torch.mm(chunk, weight.t(), out=buffer[: len(chunk)])
            loss += _loss_to_gradient(logits, chunk_labels, smoothing, needs_gradient)
            if needs_gradient:
                torch.mm(logits, weight, out=hidden_gradient[start : start + rows])
                if weight_gradient.dtype == chunk.dtype:
                    weight_gradient.addmm_(logits.t(), chunk)
                else:
                    weight_gradient += logits.t() @ chunk
        if needs_gradient:
            ctx.save_for_backward(hidden_gradient, weight_gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradients[0], weight_gradient * gradients[0], None, None, None


def _loss_to_gradient(logits: Tensor, labels: Tensor, smoothing: float, needs_gradient: bool) -> Tensor:
    """The summed loss of ``(N, V)`` logits, which become its gradient in place where that is needed."""
    exact = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    is_real = (labels != PAD_ID).to(exact.dtype)
    of_label = exact.gather(-1, labels[:, None])[:, 0]
    mean = exact.mean(-1)
    # In place step by step: shift by the maximum, exponentiate, normalise.
    maximum = exact.amax(-1)
    exact.sub_(maximum[:, None]).exp_()
    total = exact.sum(-1)
    losses = maximum + total.log() - (1 - smoothing) * of_label - smoothing * mean
    if needs_gradient:
        exact.mul_((is_real / total)[:, None])
        exact.sub_((is_real * (smoothing / logits.size(-1)))[:, None])
        exact.scatter_add_(-1, labels[:, None], (is_real * (smoothing - 1))[:, None])
        if exact is not logits:
            logits.copy_(exact)
    return (losses * is_real).sum()
