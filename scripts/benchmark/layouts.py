"""The layouts of CTranslate2's threads: one worker that has them all, or one worker for each of them."""

from collections.abc import Sequence
from statistics import median

from scripts.benchmark.translating import SearchResult

WORKERS = "_workers"
"""The end of the name of a side with one worker per thread. The rest is the name of the one-worker side."""


def sides_that_differ(sides: Sequence[str], *, threads: int, device: str) -> list[str]:
    """Leave out the sides with one worker per thread where they would measure the same as the others.

    A single thread makes a single worker, and on CUDA it is not the threads of the CPU that compute.
    """
    if threads > 1 and device != "cuda":
        return list(sides)
    return [side for side in sides if not side.endswith(WORKERS)]


def layout(side: str, threads: int) -> str:
    """Number of workers x threads of each, such as ``1 x 2 threads`` or ``2 x 1 thread``."""
    return f"{threads} x 1 thread" if side.endswith(WORKERS) else f"1 x {threads} threads"


def peer(side: str) -> str:
    """What is the same for all layouts of a program with one type of weights."""
    return side.removesuffix(WORKERS)


def by_peer(results: Sequence[SearchResult]) -> list[list[SearchResult]]:
    """The results of each peer and beam size together, one for each layout that was measured."""
    groups: dict[tuple[str, int], list[SearchResult]] = {}
    for result in results:
        groups.setdefault((peer(result.side), result.beam_size), []).append(result)
    return list(groups.values())


def fastest_in_batches(results: Sequence[SearchResult]) -> SearchResult:
    """The result with the highest median rate."""
    return max(results, key=lambda result: median(result.sentences_per_second))


def fastest_alone(results: Sequence[SearchResult]) -> SearchResult:
    """The result with the least median time of one sentence alone."""
    return min(results, key=lambda result: median(result.seconds_alone))
