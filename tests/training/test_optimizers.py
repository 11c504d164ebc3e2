"""Muon against the singular value decomposition and against torch's, and what each optimizer updates."""

import math
from typing import Literal

import pytest
import torch

from mt.config.model import ModelConfig
from mt.config.training import TrainingConfig
from mt.device import Precision
from mt.training.optimizers import Muon, make_optimizers
from mt.transformer.build import build_transformer
from mt.transformer.transformer import Transformer

RATE = 0.01


@pytest.fixture(autouse=True)
def _seed() -> None:
    """Of no matrix that is nearly singular, whose update bf16 rounds most."""
    torch.manual_seed(2)


def make_model(*, tie_output: bool = True) -> Transformer:
    config = ModelConfig(
        d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, d_ff=48, tie_output=tie_output
    )
    return build_transformer(config, src_vocab_size=20, tgt_vocab_size=30, max_length=8)


def precision(name: Literal["float32", "bf16"] = "float32") -> Precision:
    return Precision(name, torch.device("cpu"))


def steps_of(
    model: Transformer, name: Literal["float32", "bf16"] = "float32", **options: float
) -> dict[str, torch.Tensor]:
    """What one step with random gradients, which stay in the parameters, adds to each of them."""
    config = TrainingConfig.model_validate({"muon": True, **options})
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    for optimizer in make_optimizers(model, config, precision(name)):
        for group in optimizer.param_groups:
            group["lr"] = RATE
        optimizer.step()
    return {name: parameter.detach() - before[name] for name, parameter in model.named_parameters()}


def test_adam_has_the_decay_rates_and_the_epsilon_of_the_config() -> None:
    """Two steps by algorithm 1 of Kingma and Ba (2015)."""
    model = make_model()
    config = TrainingConfig(adam_beta1=0.7, adam_beta2=0.9, adam_epsilon=0.1)
    [adamw] = make_optimizers(model, config, precision())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    mean = square = change = 0.0
    for step, gradient in enumerate((1.0, -3.0), start=1):
        for group in adamw.param_groups:
            group["lr"] = RATE
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        adamw.step()
        mean = 0.7 * mean + 0.3 * gradient
        square = 0.9 * square + 0.1 * gradient**2
        change -= RATE * mean / (1 - 0.7**step) / (math.sqrt(square / (1 - 0.9**step)) + 0.1)
    for parameter, old in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), old + change, rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("tie_output", [True, False])
def test_muon_updates_the_matrices_of_the_layers_and_adam_all_else(tie_output: bool) -> None:
    model = make_model(tie_output=tie_output)
    for name, step in steps_of(model).items():
        # Adam's first step is the learning rate for each number.
        is_adams = torch.allclose(step.abs(), torch.tensor(RATE), rtol=1e-3)
        assert is_adams == (".layers." not in name or not name.endswith(".weight") or "norm" in name), name


def test_the_run_and_not_the_machine_decides_whether_muon_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes on machines with and without AMX would otherwise have different weights."""

    def steps(name: Literal["float32", "bf16"], *, amx: bool) -> dict[str, torch.Tensor]:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": amx}, raising=False)
        torch.manual_seed(1)
        return steps_of(make_model(), name)

    rounded, exact, elsewhere = (
        steps("bf16", amx=True),
        steps("float32", amx=True),
        steps("float32", amx=False),
    )
    matrix = "encoder.layers.0.feed_forward.inner.weight"
    assert not torch.equal(rounded[matrix], exact[matrix])
    for parameter, step in exact.items():
        assert torch.equal(step, elsewhere[parameter])


def mapped(values: torch.Tensor) -> torch.Tensor:
    """Singular values after all polynomials."""
    for a, b, c in Muon.POLYNOMIALS:
        values = a * values + b * values**3 + c * values**5
    return values


@pytest.mark.parametrize("shape", [(16, 16), (48, 16), (16, 48)])
def test_the_update_is_the_gradient_with_singular_values_near_one(shape: tuple[int, int]) -> None:
    """Newton-Schulz iteration is a polynomial of each singular value, here by their decomposition."""
    matrices = [torch.nn.Parameter(torch.randn(shape).double()) for _ in range(3)]
    before = [matrix.detach().clone() for matrix in matrices]
    muon = Muon(matrices, weight_decay=0.0, dtype=torch.float64)
    muon.param_groups[0]["lr"] = RATE
    for matrix in matrices:
        matrix.grad = torch.randn_like(matrix)
    muon.step()
    for matrix, old in zip(matrices, before, strict=True):
        assert matrix.grad is not None
        left, values, right = torch.linalg.svd(matrix.grad, full_matrices=False)
        values = mapped(values / (values**4).sum() ** 0.25)
        assert values.max() < 1.32
        expected = left @ values.diag() @ right * (-0.2 * max(shape) ** 0.5 * RATE)
        torch.testing.assert_close(matrix.detach() - old, expected, rtol=1e-9, atol=1e-12)


def test_matrices_take_turns_and_move_as_much_further() -> None:
    shapes = [(16, 16), (16, 16), (48, 16)]
    before = [torch.randn(shape) for shape in shapes]
    gradients = [[torch.randn(shape) for shape in shapes] for _ in range(2)]

    def moves(interval: int, rate: float) -> list[list[torch.Tensor]]:
        """The change of each matrix in each of two steps."""
        matrices = [torch.nn.Parameter(matrix.clone()) for matrix in before]
        muon = Muon(matrices, weight_decay=0.0, dtype=torch.float32, interval=interval)
        muon.param_groups[0]["lr"] = rate
        changes = []
        for turn, of_step in enumerate(gradients):
            old = [matrix.detach().clone() for matrix in matrices]
            muon.turn = turn
            for matrix, gradient in zip(matrices, of_step, strict=True):
                matrix.grad = gradient
            muon.step()
            changes.append([new.detach() - then for new, then in zip(matrices, old, strict=True)])
        return changes

    usual, in_turn = moves(1, 2 * RATE), moves(2, RATE)
    for step, whose in enumerate(([0, 2], [1])):
        for number in range(3):
            expected = usual[step][number] if number in whose else torch.zeros(shapes[number])
            torch.testing.assert_close(in_turn[step][number], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rank", [1, 3, 32])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_no_gradient_makes_a_large_update(dtype: torch.dtype, rank: int, size: float) -> None:
    """One of rank 1 has the largest singular value that there can be after scaling."""
    matrix = torch.nn.Parameter(torch.zeros(32, 128))
    muon = Muon([matrix], weight_decay=0.0, dtype=dtype)
    muon.param_groups[0]["lr"] = RATE
    for _ in range(10):
        matrix.data.zero_()
        matrix.grad = size * torch.randn(32, rank) @ torch.randn(rank, 128)
        muon.state.clear()
        muon.step()
        largest = torch.linalg.matrix_norm(matrix.detach(), 2) / (0.2 * 128**0.5 * RATE)
        assert 0.6 < largest < 1.4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_steps_are_those_of_torchs_own_muon(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """With so many rounds of a polynomial that both arrive at singular values of 1."""
    converging, num_rounds = (15 / 8, -10 / 8, 3 / 8), 40
    monkeypatch.setattr(Muon, "POLYNOMIALS", (converging,) * num_rounds)
    shapes = [(16, 16), (48, 16), (16, 16), (16, 48)]
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    before = [matrix.detach().clone() for matrix in ours]
    theirs = [torch.nn.Parameter(matrix.clone()) for matrix in before]
    muons = (
        Muon(ours, weight_decay=0.1, dtype=dtype),
        torch.optim.Muon(
            theirs,
            lr=RATE,
            weight_decay=0.1,
            adjust_lr_fn="match_rms_adamw",
            ns_coefficients=converging,
            ns_steps=num_rounds,
        ),
    )
    muons[0].param_groups[0]["lr"] = RATE
    for _ in range(6):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        for muon in muons:
            muon.step()
    for one, other, old in zip(ours, theirs, before, strict=True):
        # They round differently in bf16, which torch's always computes in.
        assert (one - other).norm() < 0.05 * (other - old).norm()
