"""What share of a GPU's peak training reaches, by the data sheet of its kind."""

import re

import torch
from torch import nn

from mt import processes
from mt.training.loss import Objective

# Operations a second with 16-bit numbers on tensor cores, without sparsity, by words of the name, of which
# the first counts: https://www.nvidia.com gives them for each kind.
_PEAKS = {
    "B200": 2250e12,
    "H200": 989e12,
    "GH200": 989e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "V100": 125e12,
    "T4": 65e12,
}


def peak_rate(objective: Objective, device: torch.device) -> float | None:
    """The target tokens per second at the peak of all processes; None for a device that is not known.

    Six operations count for each weight by which a real token is multiplied, in a forward and a backward pass
    (Kaplan et al. 2020, section 2.1); sources are taken to be as long as targets.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    peak = next((peak for kind, peak in _PEAKS.items() if re.search(rf"\b{kind}\b", name)), None)
    num_passes = 2 if objective.r_drop else 1
    return None if peak is None else peak * processes.SIZE / (6 * num_passes * num_multiplied(objective))


def num_multiplied(objective: Objective) -> int:
    """The weights that a token is multiplied by: matrices, but embeddings only if they are the output."""
    embeddings = {module.weight for module in objective.modules() if isinstance(module, nn.Embedding)}
    matrices = {parameter for parameter in objective.parameters() if parameter.dim() > 1} - embeddings
    return sum(parameter.numel() for parameter in matrices | {objective.model.output.weight})


def share_of_peak(rate: float, peak: float | None) -> str:
    """Such as ", 20 % of the GPU's peak"; nothing if the peak is not known."""
    return "" if peak is None else f", {rate / peak:.0%} of the GPU's peak".replace("%", " %")
