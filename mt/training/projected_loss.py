"""A loss over the vocabulary, from what the decoder found: projected and differentiated a chunk at a time.

The logits of all tokens at once would be the largest tensor of all. So they are made, turned into their
gradient in place, multiplied into that of the hidden states and of the projection, and forgotten.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mt.special_tokens import PAD_ID
from mt.transformer.linear import pad_rows

# 16 MB of logits, and half as much again in mixed precision, allocated once; with 2**25 a step took 12 %
# longer, with 2**20 it made no difference.
_CHUNK_ELEMENTS = 2**22
# A GPU wants few large products; 512 MB of logits in float32 are little to it.
_CHUNK_ELEMENTS_ELSEWHERE = 2**27

ChunkLoss = Callable[[Tensor, Tensor, bool], Tensor]
"""Of logits ``(N, V)`` and labels ``(N,)`` the summed loss ``()``; the logits may be overwritten, and where
the third argument is true, they become its gradient."""


def projected_loss(hidden: Tensor, weight: Tensor, labels: Tensor, chunk_loss: ChunkLoss) -> Tensor:
    """Project onto the vocabulary and sum the losses of all chunks, each of an even number of rows.

    Args:
        hidden: ``(N, D)``, what the decoder found.
        weight: ``(V, D)``, of the output projection.
        labels: ``(N,)``, cut into chunks as ``hidden`` is.
        chunk_loss: The loss of one chunk, in float32 or better.

    Returns:
        ``()``.
    """
    # Asked here, for inside of `forward` gradients are always off, and a parameter always wants one.
    with_gradient = torch.is_grad_enabled()
    loss: Tensor = _ProjectedLoss.apply(hidden, weight, labels, chunk_loss, with_gradient)  # type: ignore[no-untyped-call]
    return loss


class _ProjectedLoss(torch.autograd.Function):
    """The gradient is a by-product of the loss: it is computed on the way and only scaled in `backward`."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, chunk_loss: ChunkLoss, with_gradient: bool
    ) -> Tensor:
        num_rows = len(hidden)
        if torch.is_autocast_enabled(hidden.device.type):
            dtype = torch.get_autocast_dtype(hidden.device.type)
            weight = weight.to(dtype)
            # What may be added are rows like those of padding, which count for nothing.
            hidden = pad_rows(hidden).to(dtype)
            labels = F.pad(labels, (0, len(hidden) - num_rows), value=PAD_ID)
        needs_gradient = with_gradient and any(ctx.needs_input_grad)
        if needs_gradient:
            hidden_gradient = torch.empty_like(hidden)
            # In float32 whatever the products are in: over many chunks, bf16 would lose what is small.
            weight_gradient = torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
        vocabulary_size = weight.size(0)
        chunk_elements = _CHUNK_ELEMENTS if hidden.device.type == "cpu" else _CHUNK_ELEMENTS_ELSEWHERE
        rows = max(2, chunk_elements // vocabulary_size // 2 * 2)
        buffer = hidden.new_empty(min(rows, len(hidden)), vocabulary_size)
        exact_dtype = torch.promote_types(hidden.dtype, torch.float32)
        # Where products are in bf16 or fp16, the loss itself is not.
        exact_buffer = torch.empty_like(buffer, dtype=exact_dtype) if exact_dtype != buffer.dtype else None
        loss = hidden.new_zeros((), dtype=exact_dtype)
        for start in range(0, len(hidden), rows):
            chunk, chunk_labels = hidden[start : start + rows], labels[start : start + rows]
            logits = torch.mm(chunk, weight.t(), out=buffer[: len(chunk)])
            exact = logits if exact_buffer is None else exact_buffer[: len(chunk)].copy_(logits)
            loss += chunk_loss(exact, chunk_labels, needs_gradient)
            if needs_gradient:
                if exact is not logits:
                    logits.copy_(exact)
                torch.mm(logits, weight, out=hidden_gradient[start : start + rows])
                if weight_gradient.dtype == chunk.dtype:
                    weight_gradient.addmm_(logits.t(), chunk)
                else:
                    weight_gradient += logits.t() @ chunk
        if needs_gradient:
            ctx.save_for_backward(hidden_gradient[:num_rows], weight_gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * gradients[0], weight_gradient * gradients[0], None, None, None
