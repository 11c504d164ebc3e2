"""When finished sentences leave a batch: in steps, so that few different numbers of rows are computed.

Leaving costs a copy of what is cached, and some libraries compile a kernel for each new number of rows.
"""

from collections.abc import Sequence


def those_that_stay(is_done: Sequence[bool]) -> list[int]:
    """Return the places of the sentences that stay, in order; none if all are done.

    Those that are not done stay, and so many of the others that their number is a size of `_sizes`.
    """
    num_left = is_done.count(False)
    if num_left == 0:
        return []
    spare = min(_size(num_left), len(is_done)) - num_left
    stay = []
    for place, done in enumerate(is_done):
        if not done:
            stay.append(place)
        elif spare > 0:
            stay.append(place)
            spare -= 1
    return stay


def _size(number: int) -> int:
    """Round up to a multiple of a quarter of the largest power of two below: ..., 7, 8, 10, 12."""
    unit = max(1, 1 << (number.bit_length() - 1) >> 2)
    return -(-number // unit) * unit
