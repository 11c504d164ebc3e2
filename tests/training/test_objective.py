"""The model and its loss as one module: R-Drop and guided alignment by hand, and what each adds."""

import math

import pytest
import torch
from torch.nn import functional as F
from torch.nn.functional import pad

from mt.data.batches.batch import collate
from mt.special_tokens import PAD_ID
from mt.training.loss import guided_alignment_loss, smoothed_cross_entropy
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


@pytest.mark.parametrize("output_bias", [False, True])
def test_only_training_compares_with_some_of_the_entries(
    output_bias: bool, make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective = make_objective(output_bias=output_bias)
    (batch,) = make_batches([11])
    output = objective.model.output
    all_entries = objective(batch, 0.1)
    objective.softmax_interval = 3
    labels = batch.labels.flatten()
    weight, bias, labels = kernels.sampled_softmax(output.weight, labels, 3, bias=output.bias)
    hidden = objective.model.decode(
        batch.tgt_ids, objective.model.encode(batch.src_ids, batch.src_mask), batch.src_mask, batch.tgt_mask
    ).hidden.flatten(0, 1)
    expected = smoothed_cross_entropy(hidden, weight, labels, 0.1, bias=bias)
    torch.testing.assert_close(objective(batch, 0.1), expected)
    torch.testing.assert_close(objective.eval()(batch, 0.1), all_entries)
    assert not torch.isclose(expected, all_entries, rtol=1e-3)


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


SRC, TGT = [[5, 6, 7], [8]], [[9, 10], [11, 12, 13]]
PLACES = [[2, -1], [0, 0, -1]]


def test_the_loss_is_minus_the_log_weight_of_the_aligned_positions_among_the_real_ones() -> None:
    scores = torch.tensor([[[0.0, 1.0, -2.0], [3.0, 0.0, 0.0]], [[1.0, 1.0, 1.0], [0.0, 2.0, 0.0]]])
    # The last column is padding.
    scores, mask = pad(scores, (0, 1), value=9.0), torch.tensor([True, True, True, False])[None, None, None]
    alignment = torch.tensor([[1, -1], [2, 0]])
    expected = (
        -math.log(math.e / (1 + math.e + math.exp(-2)))
        - math.log(1 / 3)
        - math.log(1 / (2 + math.exp(2)))
    )  # fmt: skip
    torch.testing.assert_close(guided_alignment_loss(scores, mask, alignment), torch.tensor(expected))


def test_the_gradient_is_that_of_both_losses_and_the_value_that_of_one(make_objective: MakeObjective) -> None:
    batch = collate(SRC, TGT, PLACES)
    objective = make_objective()
    plain = objective(batch, 0.1)
    (plain_gradient,) = torch.autograd.grad(plain, [objective.model.src_embedding.tokens.weight])
    memory = objective.model.encode(batch.src_ids, batch.src_mask)
    decoded = objective.model.decode(
        batch.tgt_ids, memory, batch.src_mask, batch.tgt_mask, with_alignment=True
    )
    assert batch.alignment is not None
    assert decoded.alignment_scores is not None
    guided = guided_alignment_loss(decoded.alignment_scores, batch.src_mask, batch.alignment)
    (guided_gradient,) = torch.autograd.grad(guided, [objective.model.src_embedding.tokens.weight])
    objective.guided_alignment = 0.3
    both = objective(batch, 0.1)
    (gradient,) = torch.autograd.grad(both, [objective.model.src_embedding.tokens.weight])
    assert both.equal(plain)
    torch.testing.assert_close(gradient, plain_gradient + 0.3 * guided_gradient)
    assert guided_gradient.abs().max() > 0
    # Two passes that are equal are like one.
    objective.r_drop = 5.0
    twice = torch.autograd.grad(objective(batch, 0.1), [objective.model.src_embedding.tokens.weight])
    torch.testing.assert_close(twice, (gradient,))


def test_a_batch_without_alignment_has_the_plain_loss(make_objective: MakeObjective) -> None:
    batch = collate(SRC, TGT)
    objective = make_objective()
    expected = objective(batch, 0.1)
    objective.guided_alignment = 0.3
    assert objective(batch, 0.1).equal(expected)
