"""The model and its loss as one module, against ``F.cross_entropy`` over the model's logits."""

import pytest
import torch
from torch.nn import functional as F

from mt.special_tokens import PAD_ID
from mt.transformer import kernels
from tests.fixture_types import MakeBatches, MakeObjective


def test_r_drop_is_of_two_passes_with_dropout_of_their_own(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective = make_objective(dropout=0.3, output_bias=True)
    torch.nn.init.normal_(objective.model.output.bias)
    objective.r_drop = 5.0
    (batch,) = make_batches([5])
    twice = batch.repeated(2)
    torch.manual_seed(3)
    logits = objective.model(twice.src_ids, twice.src_mask, twice.tgt_ids, twice.tgt_mask)
    p, q = (one[batch.labels != PAD_ID].log_softmax(-1) for one in logits.chunk(2))
    assert not torch.allclose(p, q)
    divergence = ((p.exp() - q.exp()) * (p - q)).sum()
    cross_entropy = F.cross_entropy(
        logits.transpose(1, 2), twice.labels, label_smoothing=0.1, reduction="sum", ignore_index=PAD_ID
    )
    torch.manual_seed(3)
    torch.testing.assert_close(objective(batch, 0.1), cross_entropy / 2 + 5 / 4 * divergence)
    # Not in validation.
    p, _ = objective.eval().model(twice.src_ids, twice.src_mask, twice.tgt_ids, twice.tgt_mask).chunk(2)
    expected = F.cross_entropy(p.transpose(1, 2), batch.labels, reduction="sum", ignore_index=PAD_ID)
    torch.testing.assert_close(objective(batch, 0.0), expected)


@pytest.mark.parametrize("changes", [{}, {"r_drop": 5.0}], ids=str)
def test_padding_of_targets_needs_no_mask(
    changes: dict[str, float],
    make_objective: MakeObjective,
    make_batches: MakeBatches,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (batch,) = make_batches([11])
    assert (batch.labels == PAD_ID).any()
    found = []
    for tgt_mask in (None, "causal"):
        objective = make_objective().double()
        for name, value in changes.items():
            setattr(objective, name, value)
        if tgt_mask is not None:
            monkeypatch.setattr(kernels, "masks_for_kernel", lambda src_mask, ids, **_: (src_mask, "causal"))
        torch.manual_seed(5)
        summed = objective(batch, 0.1)
        summed.backward()
        found.append([summed, *(parameter.grad for parameter in objective.parameters())])
    for masked, causal in zip(*found, strict=True):
        torch.testing.assert_close(masked, causal, rtol=1e-12, atol=1e-12)
