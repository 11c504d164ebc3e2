"""The optimizers: AdamW alone, or Muon for the matrices of the layers and AdamW for all else."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from mt.config.training import TrainingConfig
from mt.device import multiplies_bf16_fast
from mt.transformer.transformer import Transformer


class Muon(torch.optim.Optimizer):
    """Updates matrices by orthogonalised momentum (Jordan et al. 2024, "Muon").

    The mean of a matrix's gradients is replaced with a matrix of the same singular vectors whose singular
    values are all about 1, so that rare directions are learnt as fast as frequent ones. Times 0.2 and the
    root of its longer side, the update is as large as one of AdamW's, so that one learning rate suits both
    (Liu et al. 2025, section 2.2). `torch.optim.Muon` computes the same, one matrix at a time; here those of
    equal shape share their products, which on a CPU takes about half the time.
    """

    MOMENTUM = 0.95
    # One round maps each singular value s to a s + b s^3 + c s^5.
    ROUNDS = 5
    A, B, C = 3.4445, -4.7750, 2.0315
    SCALE = 0.2

    def __init__(self, matrices: Iterable[nn.Parameter], *, weight_decay: float, dtype: torch.dtype) -> None:
        """Prepare for some matrices.

        Args:
            matrices: What is updated.
            weight_decay: What a step takes off each number, as a share of it, for a learning rate of 1.
            dtype: What the rounds are computed in; they forgive the rounding of bf16.
        """
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay})
        self._dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all matrices once; ``closure`` is not used."""
        for group in self.param_groups:
            matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
            for _, same in groupby(sorted(matrices, key=_shape), key=_shape):
                self._update(list(same), group["lr"], group["weight_decay"])

    def _update(self, matrices: list[Tensor], rate: float, weight_decay: float) -> None:
        """Update matrices of one shape."""
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
        momenta = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - self.MOMENTUM)
        ahead = torch.stack(torch._foreach_lerp(gradients, momenta, self.MOMENTUM))
        directions = self._orthogonalise(ahead).to(ahead.dtype)
        if weight_decay:
            torch._foreach_mul_(matrices, 1 - rate * weight_decay)
        scale = self.SCALE * max(ahead.shape[1:]) ** 0.5
        torch._foreach_add_(matrices, list(directions), alpha=-rate * scale)

    def _orthogonalise(self, matrices: Tensor) -> Tensor:
        """N x rows x columns: the singular values of each become about 1, by Newton-Schulz iteration."""
        norms = matrices.flatten(1).norm(dim=1).clamp(min=1e-7)
        x: Tensor = (matrices / norms.view(-1, 1, 1)).to(self._dtype)
        is_wide = x.size(1) <= x.size(2)
        for _ in range(self.ROUNDS):
            squares = torch.bmm(x, x.mT) if is_wide else torch.bmm(x.mT, x)
            factors = torch.baddbmm(squares, squares, squares, beta=self.B, alpha=self.C)
            x = (
                torch.baddbmm(x, factors, x, beta=self.A)
                if is_wide
                else torch.baddbmm(x, x, factors, beta=self.A)
            )
        return x


def _shape(matrix: Tensor) -> tuple[int, ...]:
    return tuple(matrix.shape)


def make_optimizers(model: Transformer, config: TrainingConfig) -> tuple[torch.optim.Optimizer, Muon | None]:
    """AdamW, and Muon if the config asks for it. The learning rate of both is set at each step."""
    groups = parameter_groups(model, config.weight_decay)
    muon: Muon | None = None
    if config.muon:
        # An output matrix is no map between hidden states: its rows are words, frequent and rare ones.
        inner = [matrix for matrix in groups[0]["params"] if matrix is not model.output.weight]
        groups[0]["params"] = [matrix for matrix in groups[0]["params"] if matrix is model.output.weight]
        fast = torch.bfloat16 if multiplies_bf16_fast(inner[0].device) else inner[0].dtype
        muon = Muon(inner, weight_decay=config.weight_decay, dtype=fast)
    # The fused kernel updates all parameters in one pass.
    adamw = torch.optim.AdamW(
        groups,
        lr=0.0,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=True,
    )
    return adamw, muon


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: the matrices of linear layers, and everything else, which is exempt from weight decay.

    Norms, biases and embeddings are exempt: decay would scale down the output of a norm, and shrink the
    embeddings of words that are too rare to receive gradients. An output matrix tied to an embedding counts
    as an embedding.
    """
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for parameter in model.parameters():
        (matrices if parameter.dim() > 1 and parameter not in embeddings else exempt).append(parameter)
    return [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": exempt, "weight_decay": 0.0},
    ]
