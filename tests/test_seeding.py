"""The seed decides every draw, and each purpose draws from a seed of its own."""

import pytest
import torch
from torch.nn import functional as F

from mt.seeding import derived_seed, seed_device


def draw(device: str = "cpu") -> torch.Tensor:
    """Something of each kind that training draws: weights, dropout, a permutation."""
    weights = torch.randn(5, device=device)
    dropped = F.dropout(torch.ones(50, device=device), 0.5)
    order = torch.randperm(7, device=device)
    return torch.cat([weights, dropped, order])


@pytest.mark.parametrize("seed", [0, 7, 2**63, 2**64 - 1])
def test_a_device_is_seeded_as_torch_seeds_all(seed: int) -> None:
    seed_device(seed, torch.device("cpu"))
    assert torch.equal(torch.rand(9), torch.rand(9, generator=torch.Generator().manual_seed(seed)))
    seed_device(seed, torch.device("cpu"))
    first = draw()
    torch.manual_seed(seed)
    assert torch.equal(draw(), first)


def test_each_purpose_epoch_and_batch_has_a_seed_of_its_own() -> None:
    # Also where the numbers have the same digits in a row.
    asked = [("order", (1, 23)), ("order", (12, 3)), ("order", (1, 2, 3)), ("dropout", (1, 23))]
    assert len({derived_seed(purpose, *numbers) for purpose, numbers in asked}) == len(asked)
