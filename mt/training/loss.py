"""The training objective: cross-entropy with label smoothing, R-Drop, guided alignment."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mt.data.batches.batch import Batch
from mt.masks import Mask, as_bias
from mt.special_tokens import PAD_ID
from mt.transformer.kernels.linear import (
    onednn_dtype,
    pad_outputs,
    pad_rows,
    product,
    projection,
    transposed_product,
)
from mt.transformer.transformer import Transformer

# 16 MB of logits at a time. Products are faster with many rows: in bf16, where each chunk's part of the
# weight's gradient is converted to float32, half as many chunks save 1 % of a step.
_CHUNK_BYTES = 2**24
# A GPU is faster with few large products, and has room for 512 MB of logits in float32. Compiled losses
# convert them only in registers; four times as many made 1.13 times as many tokens a second on an H100.
_CHUNK_ELEMENTS_ELSEWHERE, _CHUNK_ELEMENTS_COMPILED = 2**27, 2**29
# The loss passes over its logits ten times, so on a CPU it processes as many rows at a time as fit into the
# caches of two cores. That halves its time; half or twice as many rows are within 5 % of it.
_BLOCK_ELEMENTS = 2**19

RowLosses = Callable[[Tensor, Tensor, bool], Tensor]
"""Maps logits ``(N, V)`` and labels ``(N,)`` to the loss of each row ``(N,)``, in float32 or better. It may
overwrite the logits; if the third argument is true, it replaces them by the gradient of the summed loss."""
FusedLosses = Callable[[Tensor, Tensor, float], Tensor]
"""`mt.training.compiling.fused_losses`, compiled."""


def projected_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    row_losses: RowLosses,
    *,
    bias: Tensor | None = None,
    elements: int = _CHUNK_ELEMENTS_ELSEWHERE,
) -> Tensor:
    """Project onto the vocabulary and sum the losses of all chunks, each of an even number of rows.

    The logits of all tokens at once would be the largest tensor of training. They are computed in chunks
    instead, replaced by their gradient in place, multiplied into the gradients of the hidden states and of
    the projection, and discarded.

    Args:
        hidden: ``(N, D)``, the decoder's output.
        weight: ``(V, D)``, the output projection.
        labels: ``(N,)``, split into chunks like ``hidden``.
        row_losses: Computes the losses of rows.
        bias: ``(V,)``, that of the output projection.
        elements: How many logits one product computes, except on a CPU.

    Returns:
        ``()``.
    """
    # Inside `forward`, gradients are always disabled, so this must be determined here.
    with_gradient = torch.is_grad_enabled()
    loss: Tensor = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, labels, row_losses, elements, with_gradient
    )
    return loss


class _ProjectedLoss(torch.autograd.Function):
    """Computes the gradient together with the loss; `backward` only scales it."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        row_losses: RowLosses,
        elements: int,
        with_gradient: bool,
    ) -> Tensor:
        """The summed loss ``()`` of all chunks; with ``with_gradient``, keep the gradients for `backward`."""
        num_rows, num_ids = len(hidden), len(weight)
        # Added rows are like padding and do not count.
        hidden = pad_rows(hidden)
        labels = F.pad(labels, (0, len(hidden) - num_rows), value=PAD_ID)
        dtype = product_dtype(weight)
        weight, hidden = weight.to(dtype), hidden.to(dtype)
        weight = pad_outputs(weight)
        needs_gradient = with_gradient and any(ctx.needs_input_grad)
        if needs_gradient:
            hidden_gradient = torch.empty_like(hidden)
            # Always in float32: in a sum over many chunks, bf16 would lose small values.
            sum_dtype = torch.promote_types(weight.dtype, torch.float32)
            weight_gradient = torch.zeros_like(weight, dtype=sum_dtype)
            bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=sum_dtype)
        rows, block_rows = _rows_at_a_time(hidden, num_ids, elements)
        project = projection(weight, min(rows, len(hidden)))

        def loss_of_chunk(start: int) -> Tensor:
            chunk = hidden[start : start + rows]
            logits = project(chunk)
            if bias is not None:
                logits[:, :num_ids] += bias.to(dtype)
            losses = []
            for first in range(0, len(chunk), block_rows):
                # Added outputs are zero, and remain so when the logits are replaced by their gradient.
                block = logits[first : first + block_rows, :num_ids]
                block_labels = labels[start + first : start + first + len(block)]
                losses.append(row_losses(block, block_labels, needs_gradient))
            if needs_gradient:
                hidden_gradient[start : start + rows] = product(logits, weight)
                if weight_gradient.dtype == chunk.dtype and onednn_dtype(chunk) is None:
                    weight_gradient.addmm_(logits.t(), chunk)
                else:
                    weight_gradient.add_(transposed_product(logits, chunk))
                if bias_gradient is not None:
                    bias_gradient.add_(logits[:, :num_ids].sum(0, dtype=sum_dtype))
            return torch.cat(losses).sum()

        loss = hidden.new_zeros((), dtype=torch.promote_types(dtype, torch.float32))
        # One after the other, so that each chunk of logits reuses the memory of the previous one.
        for start in range(0, len(hidden), rows):
            loss += loss_of_chunk(start)
        if needs_gradient:
            ctx.save_for_backward(hidden_gradient[:num_rows], weight_gradient[:num_ids], bias_gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        products = [None if each is None else each * gradients[0] for each in ctx.saved_tensors]
        return *products, None, None, None, None


def in_float32(row_losses: RowLosses) -> RowLosses:
    """Compute losses of rows in float32 where their logits are in bf16 or fp16."""

    def computed(logits: Tensor, labels: Tensor, needs_gradient: bool) -> Tensor:
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = row_losses(exact, labels, needs_gradient)
        if needs_gradient and exact is not logits:
            logits.copy_(exact)
        return losses

    return computed


def product_dtype(weight: Tensor) -> torch.dtype:
    """The type in which products with this weight are computed: that of autocast, if it is enabled."""
    device = weight.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype


def _rows_at_a_time(hidden: Tensor, vocabulary_size: int, elements: int) -> tuple[int, int]:
    """How many rows of logits one product computes, and for how many of them the loss is computed at once."""
    is_cpu = hidden.device.type == "cpu"
    if is_cpu:
        elements = _CHUNK_BYTES // hidden.element_size()
    # Even numbers, because rows may come in pairs.
    rows = max(2, elements // vocabulary_size // 2 * 2)
    return rows, min(rows, max(2, _BLOCK_ELEMENTS // vocabulary_size // 2 * 2)) if is_cpu else rows


def guided_alignment_loss(scores: Tensor, alignment: Tensor) -> Tensor:
    """The cross-entropy between one head's attention and the alignment, summed over the aligned tokens.

    Args:
        scores: ``(B, T, S)``, the head's scores before the softmax.
        alignment: ``(B, T)``, the source position that each label translates; negative where there is none.

    Returns:
        ``()``, in nats.
    """
    # In float32 even within autocast, because it is a sum over many tokens.
    log_weights = scores.to(torch.promote_types(scores.dtype, torch.float32)).log_softmax(-1)
    of_aligned = log_weights.gather(-1, alignment.clamp(min=0)[:, :, None])[:, :, 0]
    return -of_aligned.masked_fill(alignment < 0, 0.0).sum()


def r_drop_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float,
    *,
    alpha: float,
    bias: Tensor | None = None,
) -> Tensor:
    """Project both passes onto the vocabulary and sum the loss over real tokens.

    Args:
        hidden: ``(2, N, D)``, the decoder's output in each pass.
        weight: ``(V, D)``, the output projection.
        labels: ``(N,)``; PAD tokens do not count.
        smoothing: Probability mass spread evenly over the vocabulary, in ``[0, 1)``.
        alpha: Weight of the divergence.
        bias: ``(V,)``, that of the output projection.

    Returns:
        ``()``, in nats.
    """

    @in_float32
    def row_losses(logits: Tensor, labels: Tensor, needs_gradient: bool) -> Tensor:
        # Each row has a weight of one half, because there are two rows for each token.
        weights = (labels != PAD_ID).to(logits.dtype) / 2
        both, log_total, gap = compare_passes(logits)
        of_label = logits.gather(-1, labels[:, None])[:, 0]
        losses = log_total - (1 - smoothing) * of_label - smoothing * logits.mean(-1)
        p, q = both[::2], both[1::2]
        divergence_of_p, divergence_of_q = (p * gap).sum(-1), -(q * gap).sum(-1)
        divergences = weights[::2] * (divergence_of_p + divergence_of_q)
        if needs_gradient:
            # The gradient in place, with the p of the cross-entropy included in the factor of p.
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
        losses *= weights
        losses[::2] += alpha / 2 * divergences
        return losses

    # Ordered by token, not by pass, so that a chunk has both passes of its tokens.
    rows = hidden.transpose(0, 1).reshape(-1, hidden.size(-1))
    return projected_loss(rows, weight, labels.repeat_interleave(2), row_losses, bias=bias)


def compare_passes(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compare rows of logits ``(2N, V)`` that alternate between two passes; their maxima are subtracted.

    Returns:
        The probabilities ``(2N, V)``, the logarithms of their normalisers ``(2N,)``, and the difference of
        the log-probabilities of the two passes ``(N, V)``.
    """
    logits.sub_(logits.amax(-1, keepdim=True))
    both = logits.exp()
    total = both.sum(-1)
    both.div_(total[:, None])
    log_total = total.log()
    gap = (logits[::2] - logits[1::2]).sub_((log_total[::2] - log_total[1::2])[:, None])
    return both, log_total, gap


def smoothed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    smoothing: float,
    fused: FusedLosses | None = None,
    *,
    bias: Tensor | None = None,
) -> Tensor:
    """Project onto the vocabulary and sum, over real tokens, the cross-entropy with the smoothed target.

    It is a sum, not a mean: the caller divides by the real tokens of the whole step, so that a short
    micro-batch does not weigh more than a long one.

    Args:
        hidden: ``(N, D)``, the decoder's output.
        weight: ``(V, D)``, the output projection.
        labels: ``(N,)``; rows with PAD do not count.
        smoothing: Probability mass spread evenly over the vocabulary, in ``[0, 1)``.
        fused: Computes losses and gradients at once; None to compute them step by step.
        bias: ``(V,)``, that of the output projection.

    Returns:
        ``()``, in nats.
    """

    @in_float32
    def row_losses(logits: Tensor, labels: Tensor, needs_gradient: bool) -> Tensor:
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
        return losses * is_real

    if fused is not None and torch.is_grad_enabled():
        return projected_loss(
            hidden,
            weight,
            labels,
            lambda rows, of_rows, _: fused(rows, of_rows, smoothing),
            bias=bias,
            elements=_CHUNK_ELEMENTS_COMPILED,
        )
    return projected_loss(hidden, weight, labels, row_losses, bias=bias)


def subtract_target(probabilities: Tensor, labels: Tensor, weights: Tensor, smoothing: float) -> None:
    """Subtract each row's smoothed target, times its weight, from ``(N, V)`` probabilities in place."""
    probabilities.sub_((weights * (smoothing / probabilities.size(-1)))[:, None])
    probabilities.scatter_add_(-1, labels[:, None], (weights * (smoothing - 1))[:, None])


def cheapest_masks(batch: Batch, dtype: torch.dtype) -> tuple[Tensor | None, Mask]:
    """The masks of source and target with which the loss of a batch is computed fastest on its device.

    Padding follows the real tokens of a target, so with the causal mask alone they never attend to it; what
    padding attends to does not matter. On CUDA, the fastest kernel accepts only the causal mask, and the
    kernel for padded sources adds a bias of the products' ``dtype``, into which torch would convert the mask
    in each attention. On a CPU there is nothing to gain from either.
    """
    if batch.tgt_ids.is_cuda:
        return as_bias(batch.src_mask, dtype) if batch.has_src_padding else None, "causal"
    return batch.src_mask, batch.tgt_mask


class Objective(nn.Module):
    """The model and its loss as one module that maps a batch to the summed loss."""

    def __init__(self, model: Transformer, *, guided_alignment: float = 0.0, r_drop: float = 0.0) -> None:
        """Combine the losses.

        Args:
            model: The model to train.
            guided_alignment: Weight of the guided-alignment loss, for batches that have an alignment.
            r_drop: Weight of the divergence in R-Drop, in training mode.
        """
        super().__init__()
        self.model = model
        self.guided_alignment = guided_alignment
        self.r_drop = r_drop
        self.fused_losses: FusedLosses | None = None
        """What `mt.training.compiling` has compiled."""

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        """The summed label-smoothed cross-entropy over the real target tokens of the batch: ``()``.

        R-Drop replaces this loss with its own. If the batch has an alignment, the weighted
        guided-alignment loss, averaged over the passes, adds its gradient but not its value, so that the
        result can be compared with that of other runs.
        """
        num_passes = 2 if self.r_drop and self.training else 1
        passes = batch.repeated(num_passes)
        weight, bias = self.model.output.weight, self.model.output.bias
        labels = batch.labels.flatten()
        src_mask, tgt_mask = cheapest_masks(passes, product_dtype(weight))
        memory = self.model.encode(passes.src_ids, src_mask)
        decoded = self.model.decode(
            passes.tgt_ids,
            memory,
            src_mask,
            tgt_mask,
            with_alignment=self.guided_alignment > 0 and passes.alignment is not None,
        )
        if num_passes == 2:
            both = decoded.hidden.view(2, len(labels), -1)
            loss = r_drop_loss(both, weight, labels, smoothing, alpha=self.r_drop, bias=bias)
        else:
            hidden = decoded.hidden.flatten(0, 1)
            loss = smoothed_cross_entropy(hidden, weight, labels, smoothing, self.fused_losses, bias=bias)
        if decoded.alignment_scores is not None and passes.alignment is not None:
            guided = guided_alignment_loss(decoded.alignment_scores, passes.alignment)
            weighted = self.guided_alignment / num_passes * guided
            loss = loss + (weighted - weighted.detach())
        return loss
