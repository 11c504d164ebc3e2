"""Muon's update against the singular value decomposition of the gradient, and what it updates."""

import pytest
import torch

from mt.config.model import ModelConfig
from mt.config.training import TrainingConfig
from mt.training.optimizers import make_optimizers
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer

RATE = 0.01


def make_model(*, tie_output: bool = True) -> Transformer:
    config = ModelConfig(
        d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=48, tie_output=tie_output
    )
    return build_transformer(config, src_vocab_size=20, tgt_vocab_size=30, max_length=8)


def steps_of(model: Transformer, **options: float) -> dict[str, torch.Tensor]:
    """What one step with random gradients, which stay in the parameters, adds to each of them."""
    adamw, muon = make_optimizers(model, TrainingConfig.model_validate({"muon": True, **options}))
    assert muon is not None
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    for optimizer in (adamw, muon):
        for group in optimizer.param_groups:
            group["lr"] = RATE
        optimizer.step()
    return {name: parameter.detach() - before[name] for name, parameter in model.named_parameters()}


def test_without_it_adam_updates_everything() -> None:
    model = make_model()
    adamw, muon = make_optimizers(model, TrainingConfig())
    assert muon is None
    assert sum(len(group["params"]) for group in adamw.param_groups) == len(list(model.parameters()))


@pytest.mark.parametrize("tie_output", [True, False])
def test_muon_updates_the_matrices_of_the_layers_and_adam_all_else(tie_output: bool) -> None:
    model = make_model(tie_output=tie_output)
    for name, step in steps_of(model).items():
        # Adam's first step is the learning rate for each number.
        is_adams = torch.allclose(step.abs(), torch.tensor(RATE), rtol=1e-3)
        assert is_adams == (".layers." not in name or not name.endswith(".weight") or "norm" in name), name


def test_the_first_step_of_muon_is_the_gradient_with_singular_values_near_one() -> None:
    """Jordan et al. 2024: five rounds of a polynomial that brings each singular value near 1, in bf16."""
    torch.manual_seed(3)
    model = make_model()
    steps = steps_of(model)
    for name, parameter in model.named_parameters():
        if ".layers." not in name or parameter.dim() == 1:
            continue
        assert parameter.grad is not None
        left, values, right = torch.linalg.svd(parameter.grad, full_matrices=False)
        values = values / values.norm()
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        assert values.max() < 1.25
        expected = left @ values.diag() @ right * (-0.2 * max(parameter.shape) ** 0.5 * RATE)
        assert (steps[name] - expected).norm() < 0.08 * expected.norm(), name


def test_weight_decay_takes_off_a_share_of_matrices_alone() -> None:
    torch.manual_seed(3)
    plain = steps_of(make_model())
    torch.manual_seed(3)
    model = make_model()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    torch.manual_seed(3)
    decayed = steps_of(make_model(), weight_decay=0.5)
    for name, step in decayed.items():
        is_matrix = ".layers." in name and before[name].dim() == 2
        expected = plain[name] - is_matrix * RATE * 0.5 * before[name]
        torch.testing.assert_close(step, expected, rtol=0, atol=1e-6)
