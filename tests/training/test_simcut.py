"""SimCut against its formula in torch, with gradients by autograd, and over passes made by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from mt.data.batches.batch import Batch, collate
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID
from mt.training import loss as loss_module
from mt.training.loss import Objective, kept_in_two_passes, simcut_loss

N, D, V = 9, 5, 7
LABELS = torch.tensor([4, PAD_ID, 5, 6, 3, PAD_ID, 1, 4, 4])

MakeObjective = Callable[..., Objective]
MakeBatches = Callable[[Sequence[int]], list[Batch]]


def make_inputs(num_tokens: int = N, vocabulary_size: int = V) -> tuple[Tensor, Tensor]:
    """Hidden ``(2, N, D)`` of two passes and weight ``(V, D)``."""
    generator = torch.Generator().manual_seed(2)
    hidden = torch.randn(2, num_tokens, D, generator=generator, dtype=torch.float64)
    weight = torch.randn(vocabulary_size, D, generator=generator, dtype=torch.float64)
    return hidden.requires_grad_(), weight.requires_grad_()


def by_formula(logits: Tensor, labels: Tensor, smoothing: float, alpha: float) -> Tensor:
    """The paper's objective, with torch's own losses, of the logits ``(2, N, V)`` of both passes."""
    real = labels != PAD_ID
    clean, cut = logits[0, real], logits[1, real]
    cross_entropy = F.cross_entropy(clean, labels[real], label_smoothing=smoothing, reduction="sum")
    divergence = F.kl_div(cut.log_softmax(-1), clean.log_softmax(-1), reduction="sum", log_target=True)
    return cross_entropy + alpha * divergence


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_loss_and_gradients_are_those_of_the_formula(smoothing: float, alpha: float) -> None:
    hidden, weight = make_inputs()
    loss = simcut_loss(hidden, weight, LABELS, smoothing, alpha=alpha)
    expected = by_formula(hidden @ weight.T, LABELS, smoothing, alpha)
    torch.testing.assert_close(loss, expected)
    gradients = (torch.autograd.grad(each, (hidden, weight)) for each in (loss, expected))
    torch.testing.assert_close(*gradients)


def test_gradients_by_finite_differences() -> None:
    assert torch.autograd.gradcheck(
        lambda hidden, weight: simcut_loss(hidden, weight, LABELS, 0.1, alpha=3.0), make_inputs()
    )


def test_both_passes_of_a_token_fall_into_one_chunk() -> None:
    """6 million logits, of which 1,053 rows would fit into a chunk, and 263 into a block: odd numbers."""
    hidden, weight = make_inputs(num_tokens=1501, vocabulary_size=1990)
    labels = torch.randint(0, 1990, (1501,), generator=torch.Generator().manual_seed(3))
    loss = simcut_loss(hidden, weight, labels, 0.1, alpha=3.0)
    expected = by_formula(hidden @ weight.T, labels, 0.1, 3.0)
    torch.testing.assert_close(loss, expected)
    gradients = (torch.autograd.grad(each, (hidden, weight)) for each in (loss, expected))
    torch.testing.assert_close(*gradients)


def test_autocast_sums_in_float32() -> None:
    hidden, weight = (x.detach().float().requires_grad_() for x in make_inputs())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = simcut_loss(hidden, weight, LABELS, 0.1, alpha=3.0)
    assert loss.dtype == torch.float32
    expected = by_formula(hidden @ weight.T, LABELS, 0.1, 3.0)
    torch.testing.assert_close(loss, expected, rtol=0.02, atol=0.02)


def gradients_of(objective: Objective, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(objective.parameters())))


@pytest.mark.parametrize("norm_first", [True, False])
def test_the_second_pass_reads_zeros_in_place_of_cut_tokens(
    norm_first: bool,
    make_objective: MakeObjective,
    make_batches: MakeBatches,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objective = make_objective(norm_first=norm_first).double()
    objective.simcut, objective.simcut_share = 3.0, 0.3
    (batch,) = make_batches([5])
    drawn: list[Tensor] = []

    def note(*arguments: Any) -> Tensor:
        drawn.append(kept_in_two_passes(*arguments))
        return drawn[-1]

    monkeypatch.setattr(loss_module, "kept_in_two_passes", note)
    torch.manual_seed(3)
    loss = objective(batch, 0.1)
    assert [kept.shape for kept in drawn] == [(10, batch.src_ids.size(1)), (10, batch.tgt_ids.size(1))]
    assert not any(kept.all() for kept in drawn)

    model, inputs = objective.model, (batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask)
    clean = model(*inputs)
    for embedding, kept in zip((model.src_embedding, model.tgt_embedding), drawn, strict=True):
        embedding.tokens.register_forward_hook(zeroing(kept[5:]))
    logits = torch.stack([clean, model(*inputs)]).flatten(1, 2)
    expected = by_formula(logits, batch.labels.flatten(), 0.1, 3.0)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradients_of(objective, loss), gradients_of(objective, expected))


def zeroing(kept: Tensor) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    return lambda module, inputs, embedded: embedded * kept[:, :, None]


def test_both_passes_have_dropout_of_their_own(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective = make_objective(dropout=0.3)
    # So few tokens are cut that the passes differ by dropout alone.
    objective.simcut, objective.simcut_share = 3.0, 1e-9
    (batch,) = make_batches([5])
    torch.manual_seed(3)
    loss = objective(batch, 0.1)
    torch.manual_seed(3)
    for ids in (batch.repeated(2).src_ids, batch.repeated(2).tgt_ids):
        assert kept_in_two_passes(ids, 1e-9).all()
    twice = batch.repeated(2)
    logits = objective.model(twice.src_ids, twice.src_mask, twice.tgt_ids, twice.tgt_mask)
    assert not torch.allclose(*logits.chunk(2))
    expected = by_formula(logits.view(2, -1, logits.size(-1)), batch.labels.flatten(), 0.1, 3.0)
    torch.testing.assert_close(loss, expected)


def test_without_weight_it_changes_not_a_bit(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    plain, without = make_objective(dropout=0.3), make_objective(dropout=0.3)
    without.simcut, without.simcut_share = 0.0, 0.3
    (batch,) = make_batches([5])
    losses = []
    for objective in (plain, without):
        torch.manual_seed(3)
        losses.append(objective(batch, 0.1))
    assert losses[0].equal(losses[1])
    both = (gradients_of(*each) for each in zip((plain, without), losses, strict=True))
    assert all(map(torch.equal, *both))


def test_validation_is_of_one_pass_with_every_token(
    make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    objective, plain = make_objective(dropout=0.3).eval(), make_objective(dropout=0.3).eval()
    objective.simcut, objective.simcut_share = 3.0, 0.5
    (batch,) = make_batches([5])
    assert objective(batch, 0.1).equal(plain(batch, 0.1))


def test_a_step_costs_what_one_of_r_drop_costs(
    make_objective: MakeObjective, make_batches: MakeBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In multiplications, as torch counts its own."""
    monkeypatch.setattr("mt.transformer.linear.onednn_is_faster", lambda dtype: False)
    (batch,) = make_batches([5])
    costs = {}
    for name in ("none", "r_drop", "simcut"):
        objective = make_objective()
        setattr(objective, name, 3.0)
        with FlopCounterMode(display=False) as counter:
            objective(batch, 0.1).backward()
        costs[name] = counter.get_total_flops()
    assert costs["simcut"] == costs["r_drop"]
    assert costs["simcut"] == pytest.approx(2 * costs["none"], rel=0.01)


def test_a_share_of_the_second_pass_is_cut_but_never_bos_or_eos() -> None:
    batch = collate([[5] * 30] * 200, [[6] * 30] * 200).repeated(2)
    torch.manual_seed(1)
    for ids in (batch.src_ids, batch.tgt_ids):
        kept = kept_in_two_passes(ids, 0.05)
        assert kept[:200].all()
        assert kept[(ids == BOS_ID) | (ids == EOS_ID)].all()
        words = kept[200:][ids[200:] > EOS_ID].view(200, 30)
        assert float(words.float().mean()) == pytest.approx(0.95, abs=0.01)
        # Each token is drawn on its own.
        assert float(words.all(1).float().mean()) == pytest.approx(0.95**30, abs=0.1)
        assert float(words.all(0).float().mean()) < 0.1
