"""Translating side by side: the same sentences, the same weights, turn by turn."""

from dataclasses import dataclass, field

from scripts.benchmark.process import SideError, Worker
from scripts.benchmark.session import Job

NUM_SENTENCES_ALONE = 50


@dataclass
class SearchResult:
    """What a side did with one beam size."""

    side: str
    beam_size: int
    batching: str
    sentences_per_second: list[float] = field(default_factory=list)
    seconds_alone: list[float] = field(default_factory=list)
    """The time of each sentence translated alone."""
    peak_mb: float = 0.0
    added_mb: float = 0.0
    """What translating took beside what was held once the model was loaded."""
    lines: list[str] = field(default_factory=list)


def measure_translating(
    sides: list[str], job: Job, beam_sizes: dict[int, int], *, threads: int, failures: dict[str, str]
) -> list[SearchResult]:
    """Let the sides take turns.

    Args:
        sides: Which.
        job: With what model.
        beam_sizes: How many rounds for each beam size; 1 is greedy search.
        threads: Threads of each side.
        failures: Told of sides that could not take part, and why.
    """
    workers: dict[str, Worker] = {}
    results: list[SearchResult] = []
    try:
        for side in sides:
            try:
                workers[side] = Worker(side, job, threads=threads)
            except SideError as error:
                failures[side] = str(error)
        for beam_size, num_rounds in beam_sizes.items():
            results += _measure_search(workers, beam_size, num_rounds, failures)
    finally:
        for worker in workers.values():
            worker.close()
    return results


def _measure_search(
    workers: dict[str, Worker], beam_size: int, num_rounds: int, failures: dict[str, str]
) -> list[SearchResult]:
    results: dict[str, SearchResult] = {}
    for side, worker in list(workers.items()):
        try:
            answer = worker.ask(do="warm_up", beam_size=beam_size)
        except SideError as error:
            failures[side] = str(error)
            del workers[side]
            continue
        if answer["can"]:
            results[side] = SearchResult(side, beam_size, answer["batching"])
    order = list(results)
    for number in range(num_rounds if order else 0):
        first = number % len(order)
        for side in order[first:] + order[:first]:
            result = results[side]
            answer = workers[side].ask(do="translate", beam_size=beam_size)
            result.lines, result.peak_mb = answer["lines"], answer["peak_mb"]
            result.added_mb = answer["added_mb"]
            result.sentences_per_second.append(len(result.lines) / answer["seconds"])
            part = NUM_SENTENCES_ALONE // num_rounds
            alone = workers[side].ask(
                do="one_by_one", beam_size=beam_size, first=number * part, last=(number + 1) * part
            )
            result.seconds_alone += alone["seconds"]
    return list(results.values())
