"""What does not fit into memory is split, with the same result, or named; the full memory is simulated."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mt.training.run
from mt import processes
from mt.data.batches.batch import Batch
from mt.device import Precision
from mt.errors import DataError, RunError
from mt.inference.model_translator import ModelTranslator
from mt.memory import is_out_of_memory
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam, Sampling, Strategy
from mt.training.loss import Objective
from mt.training.run import run_training
from mt.training.step import StepResult
from mt.training.train_state import TrainState
from mt.training.validation import validation_loss
from mt.transformer.transformer import Transformer
from tests.fixture_types import MakeBatches, MakeConfig, MakeObjective
from tests.training.steps import new_state, parameters, sgd, take_step

CPU_ERROR = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
    "allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"
)
ERRORS = [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), RuntimeError(CPU_ERROR)]


class Cramped(Objective):
    """Has room for so many rows: more fail in the forward pass, or in the middle of the backward pass."""

    room = 100
    where = "forward"
    error: RuntimeError = ERRORS[0]
    tried: list[int]

    def forward(self, batch: Batch, smoothing: float) -> Tensor:
        rows = len(batch.labels)
        self.tried = [*getattr(self, "tried", []), rows]
        if rows > self.room and (self.where == "forward" or not torch.is_grad_enabled()):
            raise self.error
        memory = self.model.encode(batch.src_ids, batch.src_mask)
        if rows > self.room:
            memory.register_hook(self._fail)  # type: ignore[no-untyped-call]
        return super().forward(batch, smoothing) + 0 * memory.sum()

    def _fail(self, gradient: Tensor) -> Tensor:
        # By now the decoder has its gradient, and the encoder has none.
        raise self.error


def state_of(objective: Objective, positions_too_large: int | None = None) -> TrainState:
    state = new_state(objective, sgd(objective))
    state.counters.positions_too_large = positions_too_large
    return state


def step(objective: Objective, batches: list[Batch]) -> StepResult:
    return take_step(state_of(objective), batches)


def gradients(objective: Objective) -> list[Tensor]:
    return [p.grad.clone() for p in objective.parameters() if p.grad is not None]


def last_attempt(objective: Cramped) -> list[int]:
    """The rows of the batches after the last that did not fit and all that was thrown away with it."""
    return next(
        objective.tried[start:] for start in range(len(objective.tried)) if sum(objective.tried[start:]) <= 11
    )


@pytest.fixture
def cramped(make_objective: MakeObjective) -> Callable[..., Cramped]:
    def make(room: int, where: str = "forward", error: RuntimeError = ERRORS[0], **changes: Any) -> Cramped:
        objective = Cramped(make_objective(**changes).model)
        objective.room, objective.where, objective.error = room, where, error
        return objective

    return make


@pytest.mark.parametrize("error", ERRORS, ids=["cuda", "cpu"])
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("room", [1, 5])
def test_the_gradient_is_that_of_the_whole_and_the_size_that_was_too_large_is_reported(
    room: int,
    where: str,
    error: RuntimeError,
    cramped: Callable[..., Cramped],
    make_batches: MakeBatches,
    caplog: pytest.LogCaptureFixture,
) -> None:
    whole, split = cramped(100), cramped(room, where, error)
    results = [step(objective, make_batches([4, 7])) for objective in (whole, split)]
    for ours, theirs in zip(gradients(split), gradients(whole), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    assert results[1].updated
    assert results[1].loss == pytest.approx(results[0].loss, rel=1e-6)
    assert results[1].batches.num_target_tokens == results[0].batches.num_target_tokens
    # Where four pairs did not fit, seven are not even tried.
    assert max(split.tried) == (7 if room == 5 else 4)
    assert sum(last_attempt(split)) == 11
    assert max(last_attempt(split)) <= room
    batch = make_batches([4, 7])[1 if room == 5 else 0]
    lengths = f"{batch.src_ids.size(1)} source and {batch.labels.size(1)} target tokens"
    message = caplog.messages[0]
    assert f"a batch of {len(batch.labels)} pairs of {lengths} was split in two" in message
    assert "lower training.batch_tokens" in message


@pytest.mark.parametrize(
    ("room", "are_several", "what"), [(0, False, "a single pair"), (6, True, "a batch of 11 pairs")]
)
def test_a_single_pair_that_does_not_fit_is_an_error_and_for_several_processes_any_batch(
    room: int,
    are_several: bool,
    what: str,
    cramped: Callable[..., Cramped],
    make_batches: MakeBatches,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "ARE_SEVERAL", are_several)
    objective = cramped(room)
    before = parameters(objective)
    with pytest.raises(
        RunError, match=rf"{what} of \d+ source and .* does not fit .* lower data\.max_length"
    ):
        step(objective, make_batches([11]))
    assert all(map(torch.equal, before, objective.parameters()))


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_with_dropout_the_outcome_is_that_of_a_step_that_knew_what_does_not_fit(
    where: str, cramped: Callable[..., Cramped], make_batches: MakeBatches
) -> None:
    # So that a run resumed from before the step, or from after it, continues as the one that never stopped.
    finding, knowing = cramped(4, where, dropout=0.3), cramped(4, where, dropout=0.3)
    first, second = (replace(batch, dropout_seed=seed) for seed, batch in enumerate(make_batches([3, 8])))
    state = state_of(finding)
    found = take_step(state, [first, second])
    assert state.counters.positions_too_large == second.num_positions
    state = state_of(knowing, second.num_positions)
    known = take_step(state, [first, second])
    assert state.counters.positions_too_large == second.num_positions
    assert (knowing.tried, finding.tried) == ([3, 4, 4], [3, 8, 3, 4, 4])
    assert found.loss == known.loss
    assert all(map(torch.equal, gradients(finding), gradients(knowing)))


def test_the_dropout_of_a_batch_is_that_of_its_own_seed(
    cramped: Callable[..., Cramped], make_batches: MakeBatches
) -> None:
    batches = [replace(batch, dropout_seed=seed) for seed, batch in enumerate(make_batches([3, 8]))]
    parts = (batches, batches[1:], batches[:1])
    together, *alone = (step(cramped(100, dropout=0.3), part) for part in parts)
    summed = sum(each.loss * each.batches.num_target_tokens for each in alone)
    assert together.loss * together.batches.num_target_tokens == pytest.approx(summed, rel=1e-5)


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_what_did_not_fit_costs_one_step_and_no_later_one(
    where: str, cramped: Callable[..., Cramped], make_batches: MakeBatches
) -> None:
    # Four micro-batches of like size, each a little too large.
    micro_batches = [make_batches([11])[0] for _ in range(4)]
    objective = cramped(10, where)
    state = state_of(objective)
    for _ in range(3):
        take_step(state, micro_batches)
    assert objective.tried == [11, *[5, 6] * 4 * 3]


def test_validation_is_halved_and_finds_the_same(
    cramped: Callable[..., Cramped], make_batches: MakeBatches, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "mt")
    precision = Precision("float32", torch.device("cpu"))
    whole, split = cramped(100).eval(), cramped(2).eval()
    losses = [validation_loss(o, make_batches([4, 7]), precision) for o in (whole, split)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert "out of memory: a batch of 7 pairs of" in caplog.text
    with pytest.raises(RunError, match=r"a single pair of .* does not fit into memory"):
        validation_loss(cramped(0).eval(), make_batches([2]), precision)


def test_a_memory_that_is_really_full_is_known() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**61, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("out of luck"))


@pytest.mark.parametrize(("share", "rows"), [(0.8, [11]), (0.95, [6, 5])])
def test_a_batch_that_would_hardly_fit_is_split_without_a_try(
    share: float, rows: list[int], make_objective: MakeObjective, make_batches: MakeBatches
) -> None:
    [batch] = make_batches([11])
    objective = Cramped(make_objective().model)
    take_step(state_of(objective, round(batch.num_positions / share)), [batch])
    assert sorted(objective.tried, reverse=True) == rows


@pytest.fixture
def room_for(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Lets the search have room for so many sentences; the sizes that were tried."""

    def make(room: int) -> list[int]:
        start_cache = Transformer.start_cache
        tried: list[int] = []

        def cramped(self: Transformer, memory: Tensor, src_mask: Tensor) -> Any:
            tried.append(len(memory))
            if len(memory) > room:
                raise ERRORS[0]
            return start_cache(self, memory, src_mask)

        monkeypatch.setattr(Transformer, "start_cache", cramped)
        return tried

    return make


@pytest.mark.parametrize(
    "strategy", [None, Sampling(1.0, seed=3), Beam(3, 0.6)], ids=["greedy", "sampling", "beam"]
)
def test_translating_in_halves_gives_the_same(
    strategy: Strategy,
    trained: RunDirectory,
    tiny_corpus: Path,
    room_for: Callable[[int], list[int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = (tiny_corpus / "test.en").read_text(encoding="utf-8").splitlines()
    translator = ModelTranslator.from_run(trained, device=torch.device("cpu"))
    expected = translator.translate(lines, strategy=strategy)
    tried = room_for(3)
    assert translator.translate(lines, strategy=strategy) == expected
    assert max(tried) == 8
    assert "a batch of 8 sentences was split in two" in caplog.text


def test_a_sentence_that_does_not_fit_is_named(
    trained: RunDirectory, room_for: Callable[[int], list[int]]
) -> None:
    translator = ModelTranslator.from_run(trained, device=torch.device("cpu"))
    room_for(0)
    with pytest.raises(DataError, match=r"line 7 has a sentence of 5 tokens that does not fit into memory"):
        translator.translate(["Anna sees the car."], first_line=7)


def test_a_model_that_does_not_fit_is_a_sentence(
    make_config: MakeConfig, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise ERRORS[0]

    monkeypatch.setattr(mt.training.run, "build_model", full)
    with pytest.raises(RunError, match=r"do not fit into memory\. Lower model\.d_model"):
        run_training(make_config(), run)
