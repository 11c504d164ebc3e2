"""Running out of memory: how it is recognised, and work that is split until it fits."""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

Work = TypeVar("Work")
Result = TypeVar("Result")

# Of CUDA and CTranslate2, of the CPU, of cuBLAS, of MPS, of C++, and of the dynamic linker.
_OUT_OF_MEMORY = "out of memory|allocate memory|ALLOC_FAILED|Invalid buffer size|bad_alloc|map segment"


def is_out_of_memory(error: Exception) -> bool:
    """Whether this error says that something did not fit into memory."""
    return re.search(_OUT_OF_MEMORY, str(error)) is not None


def split_on_out_of_memory(
    compute: Callable[[Work], Result], work: Work, split: Callable[[Work], Sequence[Work]]
) -> list[Result]:
    """``[compute(work)]``, or the results of its parts if the whole does not fit into memory."""
    try:
        return [compute(work)]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    # Outside the handler, because the error keeps the tensors of all frames that it passed through alive.
    results = []
    for part in split(work):
        results += split_on_out_of_memory(compute, part, split)
    return results
