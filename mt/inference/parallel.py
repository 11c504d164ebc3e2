"""Work that is done in parallel on a CPU, each piece on a share of torch's threads.

An operation that is divided among threads ends when the last of them does, and only then the next one begins.
Batches on one thread each never wait for one another.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")
Check = Callable[[], None]
"""Raises if the work must be abandoned."""

# Each piece needs its own memory.
_MOST_IN_PARALLEL = 4
# Python handles a signal that arrives just before a wait only when the wait is over.
_WAIT_SECONDS = 0.1


def num_in_parallel(device: torch.device) -> int:
    """How many pieces of work a device does in parallel: on a CPU one for each torch thread, up to four."""
    return min(_MOST_IN_PARALLEL, torch.get_num_threads()) if device.type == "cpu" else 1


def map_in_parallel(
    work: Callable[[T, Check], R],
    pieces: Sequence[T],
    number: int,
    *,
    check: Check = lambda: None,
    after: Callable[[T], None] = lambda piece: None,
) -> list[R]:
    """The results of ``work`` for all pieces, in order.

    An exception of ``work`` or ``check``, or KeyboardInterrupt, is raised here, once the pieces that have
    begun are abandoned at their next check: a process cannot end before its threads.

    Args:
        work: Called in a separate thread, unless there is nothing to do in parallel. Its second argument is a
            function to call often: it raises if the piece is abandoned.
        pieces: The pieces, begun in this order.
        number: How many are done in parallel.
        check: Called in the calling thread before each piece, and by ``work`` whenever it calls its second
            argument; may raise to stop.
        after: Called in the calling thread with each finished piece, in the order in which they finish.
    """
    number = min(number, len(pieces))
    if number < 2:
        results = []
        for piece in pieces:
            check()
            results.append(work(piece, check))
            after(piece)
        return results
    num_threads = torch.get_num_threads()
    is_abandoned = threading.Event()

    def check_piece() -> None:
        if is_abandoned.is_set():
            raise CancelledError
        check()

    # The number of threads applies to the thread that sets it, and to all new ones.
    pool = ThreadPoolExecutor(number, "search", torch.set_num_threads, (max(1, num_threads // number),))
    try:
        running: dict[Future[R], T] = {}
        futures: list[Future[R]] = []
        while len(futures) < len(pieces) or running:
            if len(futures) < len(pieces) and len(running) < number:
                check()
                futures.append(pool.submit(work, pieces[len(futures)], check_piece))
                running[futures[-1]] = pieces[len(futures) - 1]
                continue
            for future in wait(running, _WAIT_SECONDS, FIRST_COMPLETED).done:
                future.result()
                after(running.pop(future))
        return [future.result() for future in futures]
    finally:
        # Without an error, the threads have nothing left to do.
        is_abandoned.set()
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(num_threads)
