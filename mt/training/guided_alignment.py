"""Guided alignment: one attention head is trained to attend to the source word that is translated next.

Chen et al. 2016 ("Guided alignment training for topic-aware neural machine translation"), Garg et al. 2019
("Jointly learning to align and translate with Transformer models"). In search the head then tells which
source word the next word translates.
"""

from torch import Tensor


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
