"""Which sentences are searched together."""

from collections.abc import Sequence

_WORTH_DIVIDING = 64
"""From this many hypotheses on, several batches at once are faster than one."""


def group_by_length(
    lengths: Sequence[int],
    *,
    most_sentences: int,
    most_positions: int,
    beam_size: int = 1,
    num_in_parallel: int = 1,
) -> list[list[int]]:
    """Group sentences of similar length into batches of indices, the longest first.

    With the longest first, running out of memory happens at the start, not at the end. Batches that are
    searched at once share the memory of one (``most_sentences``, ``most_positions`` with padding), unless a
    single sentence needs more than its share.
    """
    most_sentences = max(1, most_sentences // num_in_parallel)
    if beam_size * len(lengths) >= _WORTH_DIVIDING:
        most_sentences = min(most_sentences, -(-len(lengths) // num_in_parallel))
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    batches = []
    start = 0
    while start < len(order):
        size = max(1, min(most_sentences, most_positions // num_in_parallel // lengths[order[start]]))
        batches.append(order[start : start + size])
        start += size
    return batches
