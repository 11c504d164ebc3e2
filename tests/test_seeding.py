"""The seed decides every draw; the state out and in continues a stream where it was."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from mt.seeding import random_state, restore_random_state, seed_everything


def draw(device: str = "cpu") -> torch.Tensor:
    """Something of each kind that training draws: weights, dropout, a permutation."""
    weights = torch.randn(5, device=device)
    dropped = F.dropout(torch.ones(50, device=device), 0.5)
    order = torch.randperm(7, device=device)
    return torch.cat([weights, dropped, order])


def test_same_seed_same_draws_and_another_seed_others() -> None:
    seed_everything(7)
    first = draw()
    seed_everything(7)
    assert torch.equal(draw(), first)
    seed_everything(8)
    assert not torch.equal(draw(), first)


def test_seed_is_that_of_a_generator_of_torch() -> None:
    seed_everything(7)
    assert torch.equal(torch.rand(9), torch.rand(9, generator=torch.Generator().manual_seed(7)))


def test_restored_state_continues_the_stream_where_it_was() -> None:
    seed_everything(7)
    draw()
    state = random_state()
    expected = [draw(), draw()]
    seed_everything(99)
    draw()
    restore_random_state(state)
    assert all(torch.equal(draw(), tensor) for tensor in expected)


def test_taking_the_state_draws_nothing_and_the_state_does_not_move_on() -> None:
    seed_everything(7)
    expected = draw()
    seed_everything(7)
    state = random_state()
    before = state["cpu"].clone()
    assert torch.equal(draw(), expected)
    assert torch.equal(state["cpu"], before)


def test_state_survives_a_file_loaded_with_weights_only(tmp_path: Path) -> None:
    seed_everything(7)
    torch.save(random_state(), tmp_path / "state.pt")
    expected = draw()
    restore_random_state(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(draw(), expected)


def test_kinds_of_device_that_this_machine_lacks_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    state = random_state()
    expected = draw()
    of_another_machine = torch.zeros(16, dtype=torch.uint8)
    restore_random_state(state | {"cuda": of_another_machine, "mps": of_another_machine})
    assert torch.equal(draw(), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_cuda_stream_continues_where_it_was() -> None:
    seed_everything(7)
    draw("cuda")
    state = random_state()
    assert state["cuda"].device.type == "cpu"
    expected = draw("cuda")
    seed_everything(99)
    restore_random_state(state)
    assert torch.equal(draw("cuda"), expected)
