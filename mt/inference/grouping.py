"""Which sentences are searched together."""

from collections.abc import Sequence
from itertools import chain

_WORTH_DIVIDING = 64
"""From this many hypotheses on, several batches at once are faster than one."""


def group_by_length(
    lengths: Sequence[int],
    *,
    most_sentences: int,
    most_positions: int,
    multiple_of: int = 1,
    beam_size: int = 1,
    num_in_parallel: int = 1,
) -> list[list[int]]:
    """Group sentences of similar length into batches of indices, the longest first.

    With the longest first, running out of memory happens at the start, not at the end. Batches that are
    searched at once share the memory of one (``most_sentences``, ``most_positions`` with padding), unless a
    single sentence needs more than its share. A batch may have up to an eighth more sentences if those would
    lengthen the next batch. The model pads the sources of a batch to a multiple of ``multiple_of``.
    """
    most_sentences = max(1, most_sentences // num_in_parallel)
    if beam_size * len(lengths) >= _WORTH_DIVIDING:
        most_sentences = min(most_sentences, -(-len(lengths) // num_in_parallel))
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    padded = [-(-lengths[place] // multiple_of) * multiple_of for place in order]
    batches = []
    start = 0
    while start < len(order):
        size = max(1, min(most_sentences, most_positions // num_in_parallel // padded[start]))
        end = start + size
        if multiple_of > 1:
            few = min(size // 8, most_sentences - size)
            end += _before_shorter(padded[end : end + few + 1])
        batches.append(order[start:end])
        start = end
    return _ending_together(batches, lengths, beam_size, num_in_parallel)


def _before_shorter(padded: Sequence[int]) -> int:
    """How many sentences precede the first one with a shorter padded length; 0 if there is none."""
    return next((number for number, length in enumerate(padded) if length < padded[0]), 0)


def _ending_together(
    batches: list[list[int]], lengths: Sequence[int], beam_size: int, num_in_parallel: int
) -> list[list[int]]:
    """Divide the sentences of the last round anew, so that no thread has nothing left to do before others.

    The last round is what remains when all threads have had equally many batches. A batch is expected to take
    time in proportion to its tokens.
    """
    if not batches:
        return batches
    number = (len(batches) - 1) % num_in_parallel + 1
    earlier, last = batches[:-number], batches[-number:]
    left = list(chain.from_iterable(last))
    if beam_size * len(left) < _WORTH_DIVIDING:
        return batches
    loads = [0] * num_in_parallel
    for batch in earlier:
        loads[loads.index(min(loads))] += sum(lengths[place] for place in batch)
    # In the order in which the threads begin them.
    shares: dict[int, list[int]] = {}
    for place in left:
        thread = loads.index(min(loads))
        loads[thread] += lengths[place]
        shares.setdefault(thread, []).append(place)
    # More would not fit: those of the first batch are the longest.
    if max(map(len, shares.values())) > len(last[0]):
        return batches
    return [*earlier, *shares.values()]
