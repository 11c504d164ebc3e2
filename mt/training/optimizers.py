"""The optimizers: AdamW alone, or Muon for the matrices of the layers and AdamW for all else."""

from typing import Any

import torch
from torch import nn

from mt.config.training import TrainingConfig
from mt.transformer.transformer import Transformer


def make_optimizers(
    model: Transformer, config: TrainingConfig
) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer | None]:
    """AdamW, and Muon if the config asks for it. The learning rate of both is set at each step.

    Muon (Jordan et al. 2024) replaces the mean of a matrix's gradients with the nearest matrix whose singular
    values are all 1, so that rare directions are learnt as fast as frequent ones. Times 0.2 and the root of
    the longer side its updates are as large as AdamW's, so that one learning rate suits both (Liu et al.
    2025, section 2.2).
    """
    groups = parameter_groups(model, config.weight_decay)
    muon: torch.optim.Optimizer | None = None
    if config.muon:
        # An output matrix is no map between hidden states: its rows are words, frequent and rare ones.
        inner = [matrix for matrix in groups[0]["params"] if matrix is not model.output.weight]
        groups[0]["params"] = [matrix for matrix in groups[0]["params"] if matrix is model.output.weight]
        muon = torch.optim.Muon(
            inner, lr=0.0, weight_decay=config.weight_decay, adjust_lr_fn="match_rms_adamw"
        )
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
