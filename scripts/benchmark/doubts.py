"""Signs that a run is not to be trusted. One of them is enough for it not to be written into the page."""

from collections.abc import Sequence
from statistics import median

from scripts.benchmark import layouts
from scripts.benchmark.translating import SearchResult

MOST_TIMES_ALONE = 15
"""One sentence alone takes a peer about 8 times as long as one of a batch. Where it took 23 times as long, as
CTranslate2 once did here, its threads were slowed down, by other work or by each other, and its batch rate
was not what it reaches elsewhere."""
MOST_DIFFERENCE = 0.2
"""The most by which the ceiling of a round may differ from that of the others."""
MOST_LEFT_OUT = 0.2
"""The share of sentences that a model may fail to end."""
MOST_STOLEN = 0.05
"""The share of the processors' time that the host of a virtual machine may give to others."""


def about_ceilings(ceilings: Sequence[float]) -> list[str]:
    """Compare the ceiling of each round, in GFLOP/s, with the median of the others."""
    found = []
    for number, ceiling in enumerate(ceilings):
        others = [*ceilings[:number], *ceilings[number + 1 :]]
        if others and abs(ceiling / median(others) - 1) > MOST_DIFFERENCE:
            found.append(
                f"the ceiling of round {number + 1} was {ceiling:,.0f} GFLOP/s and that of the others "
                f"{median(others):,.0f}: something else was using the machine"
            )
    return found


def about_peers(results: Sequence[SearchResult], device: str) -> list[str]:
    """Compare the time that a peer takes for one sentence alone with its rate in batches.

    What counts for a peer is its best layout: the least time alone of its layouts times the highest of their
    rates. The threads of one layout may hamper each other. That is no reason to distrust the run as long as
    another layout is sound, because `mt` is compared with the faster one. Where all are slow, it is.

    On CUDA there is nothing to compare: launching a step takes as long for one sentence as for many.
    """
    if device == "cuda":
        return []
    found = []
    for group in layouts.by_peer([result for result in results if not result.side.startswith("mt_")]):
        alone = median(layouts.fastest_alone(group).seconds_alone)
        rate = median(layouts.fastest_in_batches(group).sentences_per_second)
        if alone * rate > MOST_TIMES_ALONE:
            best = "the best of " if len(group) > 1 else ""
            found.append(
                f"{best}{' and '.join(result.side for result in group)}, beam of {group[0].beam_size}: "
                f"one sentence alone took {1000 * alone:.1f} ms, {alone * rate:.0f} times what "
                f"{rate:,.0f} sentences/s in batches suggest"
            )
    return found


def about_sentences(left_out: int, tried: int) -> list[str]:
    """Compare the number of sentences that the model did not end with the number that it tried."""
    if left_out <= MOST_LEFT_OUT * tried:
        return []
    return [f"{left_out:,} of {tried:,} sentences were left out: the model has not learnt to end them"]


def about_stolen_time(share: float) -> list[str]:
    """Compare the share of the processors' time that the host gave to others with what is usual."""
    if share <= MOST_STOLEN:
        return []
    return [f"the host gave {share:.0%} of the processors' time to others"]
