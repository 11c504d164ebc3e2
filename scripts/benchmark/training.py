"""Training side by side: in each round each side has its turn, so that a slow minute is slow for all."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from scripts.benchmark.process import SideError, Worker
from scripts.benchmark.session import Job

SAME_BATCHES = ("mt_train", "torch_loop", "marian")
"""Sides that train on the very same batches and begin with the same weights."""


@dataclass(frozen=True)
class Turn:
    """What a side did in one round."""

    tokens_per_second: float
    share_of_ceiling: float
    gigaflops: float


@dataclass
class TrainingResult:
    """What a side did in all rounds."""

    side: str
    turns: list[Turn] = field(default_factory=list)
    src_padding: float = 0.0
    tgt_padding: float = 0.0
    peak_mb: float = 0.0
    first_loss: float | None = None
    num_parameters: int | None = None


@dataclass(frozen=True)
class Rounds:
    """How much is done in a round."""

    number: int
    steps: int
    """Steps of the sides that share their batches."""
    seconds: float
    """The least time of a turn of the others."""


def measure_training(
    sides: Mapping[str, str], job: Job, rounds: Rounds, *, threads: int, failures: dict[str, str]
) -> tuple[list[TrainingResult], list[float]]:
    """Let the sides take turns.

    Args:
        sides: Which, each with the Python of its environment.
        job: What they train.
        rounds: For how long.
        threads: Threads of each side.
        failures: Told of sides that could not take part, and why.

    Returns:
        The sides' results, and the measured ceiling of each round in GFLOP/s.
    """
    workers: dict[str, Worker] = {}
    results: dict[str, TrainingResult] = {}
    ceilings: list[float] = []
    with Worker("ceiling", job, threads=threads) as ceiling:
        try:
            for side, python in sides.items():
                try:
                    worker = Worker(side, job, threads=threads, python=python)
                    workers[side] = worker
                    # The first steps are slower than those after them and not counted.
                    worker.ask(steps=2)
                    results[side] = TrainingResult(
                        side,
                        first_loss=worker.facts.get("first_loss"),
                        num_parameters=worker.facts.get("num_parameters"),
                    )
                except SideError as error:
                    failures[side] = str(error)
            for number in range(rounds.number):
                ceilings.append(ceiling.ask(do="measure")["gigaflops"])
                for side in _rotated(list(results), number):
                    try:
                        _take_turn(workers[side], results[side], rounds, ceilings[-1])
                    except SideError as error:
                        failures[side] = str(error)
                        del results[side]
        finally:
            for worker in workers.values():
                worker.close()
    return list(results.values()), ceilings


def _take_turn(worker: Worker, result: TrainingResult, rounds: Rounds, ceiling: float) -> None:
    if result.side in SAME_BATCHES:
        answer = worker.ask(steps=rounds.steps)
    else:
        answer = worker.ask(steps=1, seconds=rounds.seconds)
    seconds = answer["seconds"]
    gigaflops = answer["flops"] / seconds / 1e9
    result.turns.append(Turn(answer["tgt_tokens"] / seconds, gigaflops / ceiling, gigaflops))
    result.peak_mb = answer["peak_mb"]
    print(f"  {result.side}: {result.turns[-1].tokens_per_second:,.0f} tokens/s", file=sys.stderr, flush=True)
    # Of the last round: rounds are alike.
    result.src_padding = 1 - answer["src_tokens"] / answer["src_slots"]
    result.tgt_padding = 1 - answer["tgt_tokens"] / answer["tgt_slots"]


def _rotated(sides: list[str], number: int) -> list[str]:
    """Another side first in each round."""
    first = number % len(sides) if sides else 0
    return sides[first:] + sides[:first]


def ratios(reference: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """How many times as much the reference has in the same round: median, least, most."""
    each = [a / b for a, b in zip(reference, other, strict=True)]
    return median(each), min(each), max(each)
