"""The optimizers: AdamW alone, or Muon for the matrices of the layers and AdamW for everything else."""

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from mt.config.training import TrainingConfig
from mt.device import Precision
from mt.transformer.transformer import Transformer

_SHAPE = attrgetter("shape")


class Muon(torch.optim.Optimizer):
    """Updates matrices by orthogonalised momentum (Jordan et al. 2024, "Muon").

    The moving average of a matrix's gradients is replaced with a matrix that has the same singular vectors
    and singular values that are all about 1, so that rare directions are learnt as fast as frequent ones.
    Multiplied by 0.2 and the square root of its longer side, the update is as large as one of AdamW's, so
    that one learning rate suits both (Liu et al. 2025, section 2.2). Unlike `torch.optim.Muon`, matrices of
    equal shape share their products, which is faster on a CPU.
    """

    MOMENTUM = 0.95
    # A round with a, b and c maps each singular value s to a s + b s^3 + c s^5. Each of these polynomials is
    # the one closest to 1 on the interval of values that the previous one leaves (Amsel et al. 2025, "The
    # Polar Express", theorem 3.1), starting with 0.0025 to 1. Their intervals end 5 % above that, because
    # bf16 rounds, and values beyond them grow without bounds. The last one leaves 0.68 to 1.32.
    POLYNOMIALS = (
        (8.0098, -21.4846, 14.4488),
        (3.9001, -2.6352, 0.4504),
        (3.5105, -2.3912, 0.4271),
        (2.6493, -1.8149, 0.3739),
    )
    SCALE = 0.2

    def __init__(
        self, matrices: Iterable[nn.Parameter], *, weight_decay: float, dtype: torch.dtype, interval: int = 1
    ) -> None:
        """Prepare for these matrices; the rounds tolerate the rounding of bf16 (``dtype``).

        Each matrix is updated once in an ``interval`` of steps, and moves as much further; they take turns.
        """
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay})
        self._dtype = dtype
        self._interval = interval
        self.turn = 0
        """The number of this step, which decides whose turn it is."""
        self.found_inf: Tensor | None = None
        """As torch's fused optimizers have it: if it is there, and not 0, a step changes nothing."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all matrices once, unless `found_inf` is 1; ``closure`` is not used."""
        for group in self.param_groups:
            matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
            for _, same in groupby(sorted(matrices, key=_SHAPE), key=_SHAPE):
                self._update(list(same), self._interval * group["lr"], group["weight_decay"])

    def _update(self, matrices: list[Tensor], rate: float, weight_decay: float) -> None:
        """Update matrices of one shape."""
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
        momenta = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
        kept: float | Tensor = 1 - rate * weight_decay
        if self.found_inf is not None:
            # No branch, for which the host would have to wait: with its momentum as the gradient, a matrix
            # keeps its momentum. A product with 0 would not do, because the gradient may be NaN.
            is_bad = self.found_inf > 0
            kept = torch.where(is_bad, 1.0, kept)
            gradients = [torch.where(is_bad, *pair) for pair in zip(momenta, gradients, strict=True)]
        torch._foreach_lerp_(momenta, gradients, 1 - self.MOMENTUM)
        due = slice(self.turn % self._interval, None, self._interval)
        matrices, gradients, momenta = matrices[due], gradients[due], momenta[due]
        if not matrices:
            return
        ahead = torch.empty(len(matrices), *matrices[0].shape, dtype=self._dtype, device=matrices[0].device)
        # One after the other, so that they stay in the caches.
        for slot, gradient, momentum in zip(ahead, gradients, momenta, strict=True):
            slot.copy_(gradient.lerp(momentum, self.MOMENTUM))
        if weight_decay:
            torch._foreach_mul_(matrices, kept)
        scale = self.SCALE * max(ahead.shape[1:]) ** 0.5
        directions = self._orthogonalise(ahead)
        if self.found_inf is not None:
            directions = torch.where(is_bad, 0.0, directions)
        for matrix, direction in zip(matrices, directions, strict=True):
            matrix.add_(direction, alpha=-rate * scale)

    def _orthogonalise(self, x: Tensor) -> Tensor:
        """``(N, rows, columns)``: make all singular values about 1, by Newton-Schulz iteration."""
        is_wide = x.size(1) <= x.size(2)
        squares = _squares(x)
        # The fourth root of the sum of the singular values' fourth powers, which no singular value exceeds.
        exact = torch.promote_types(x.dtype, torch.float32)
        norms = torch.linalg.vector_norm(squares, dim=(1, 2), keepdim=True, dtype=exact).sqrt()
        norms = norms.clamp(min=1e-7).to(x.dtype)
        x, squares = x / norms, squares / norms**2
        for number, (a, b, c) in enumerate(self.POLYNOMIALS):
            if number:
                squares = _squares(x)
            factors = torch.baddbmm(squares, squares, squares, beta=b, alpha=c)
            factors.diagonal(dim1=1, dim2=2).add_(a)
            x = torch.bmm(factors, x) if is_wide else torch.bmm(x, factors)
        return x


def _squares(x: Tensor) -> Tensor:
    """``(N, rows, columns)``: each matrix times its transpose, on the shorter side."""
    return torch.bmm(x, x.mT) if x.size(1) <= x.size(2) else torch.bmm(x.mT, x)


def make_optimizers(
    model: Transformer, config: TrainingConfig, precision: Precision
) -> list[torch.optim.Optimizer]:
    """AdamW, and Muon if configured. The learning rate of both is set at each step."""
    groups = parameter_groups(model, config.weight_decay)
    muon: list[torch.optim.Optimizer] = []
    if config.muon and (inner := _inner_matrices(model)):
        groups[0]["params"] = [matrix for matrix in groups[0]["params"] if matrix is model.output.weight]
        # By the run's precision, not by the machine, because all processes of a run must compute the same.
        dtype = torch.bfloat16 if precision.name == "bf16" else inner[0].dtype
        interval = config.muon_interval
        muon = [Muon(inner, weight_decay=config.weight_decay, dtype=dtype, interval=interval)]
    # The fused kernel updates all parameters in one pass.
    betas = config.adam_beta1, config.adam_beta2
    return [torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=config.adam_epsilon, fused=True), *muon]


def count_moments(model: Transformer, config: TrainingConfig) -> int:
    """How many numbers the optimizers keep: two for each AdamW parameter, one for each Muon parameter."""
    num_parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    num_of_muon = sum(matrix.numel() for matrix in _inner_matrices(model)) if config.muon else 0
    return 2 * num_parameters - num_of_muon


def _inner_matrices(model: Transformer) -> list[nn.Parameter]:
    """All matrices except embeddings and the output, whose rows are frequent and rare words."""
    matrices = parameter_groups(model, 0.0)[0]["params"]
    return [matrix for matrix in matrices if matrix is not model.output.weight]


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups of what is trained: matrices of linear layers, and all else, exempt from weight decay.

    Decay would scale down the output of a norm, and shrink the embeddings of words that are rare.
    """
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in trained if parameter.dim() > 1 and parameter not in embeddings]
    exempt = [parameter for parameter in trained if parameter.dim() < 2 or parameter in embeddings]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": exempt, "weight_decay": 0.0}]
