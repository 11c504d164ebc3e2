"""The guided-alignment loss by hand, and what it adds to the objective's gradient."""

import math

import torch
from torch.nn.functional import pad

from mt.data.batches.batch import collate
from mt.training.loss import guided_alignment_loss
from tests.fixture_types import MakeObjective

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
