"""Forced decoding: how probable a model thinks a translation that is given."""

from torch import Tensor

from mt.search.model import TeacherForced


def forced_log_probs(
    model: TeacherForced, src_ids: Tensor, src_mask: Tensor, tgt_ids: Tensor, tgt_mask: Tensor, labels: Tensor
) -> Tensor:
    """The natural log-probability of each label, over the whole vocabulary, given those before it.

    Args:
        model: In evaluation mode.
        src_ids: ``(B, S)``.
        src_mask: ``(B, 1, 1, S)``, True where a source token is real.
        tgt_ids: ``(B, T)``, beginning with BOS.
        tgt_mask: ``(B, 1, T, T)``, True where a target token may look.
        labels: ``(B, T)``, ending with EOS; what is said of padding means nothing.

    Returns:
        ``(B, T)``. The sum over a row is the score that search gives to such a hypothesis.
    """
    logits = model.forward(src_ids, src_mask, tgt_ids, tgt_mask).float()
    # Less memory than a log-softmax, of which one number in V would be read.
    return logits.gather(-1, labels[..., None])[..., 0] - logits.logsumexp(-1)
