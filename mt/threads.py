"""The number of torch's threads, and work that is done in parallel, each piece on a share of the threads.

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
_MOST_AT_ONCE = 4
# Python handles a signal that arrives just before a wait only when the wait is over.
_LOOKING_SECONDS = 0.1


def fix_num_threads() -> None:
    """Keep MKL from choosing how many threads each product gets; call it before the first step of training.

    MKL no longer chooses once the number of torch's threads has been set, as in `map_at_once`. Otherwise a
    run that has validated would not compute the same as a resumed run that has not.
    """
    torch.set_num_threads(torch.get_num_threads())


def num_at_once(device: torch.device) -> int:
    """How many pieces of work a device does in parallel: on a CPU one for each torch thread, up to four."""
    return min(_MOST_AT_ONCE, torch.get_num_threads()) if device.type == "cpu" else 1


def map_at_once(
    work: Callable[[T, Check], R],
    pieces: Sequence[T],
    number: int,
    *,
    check: Check = lambda: None,
    after: Callable[[T], None] = lambda piece: None,
) -> list[R]:
    """The results of ``work`` for all pieces, in order.

    In the meantime, the number of torch's threads is the share of a piece, and afterwards what it was before.
    Exceptions of ``work`` and ``check`` are raised here, as is KeyboardInterrupt. Then no other piece begins,
    and those that have begun are abandoned at their next check. This function waits for them, because a
    process cannot end before its threads.

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
    given_up = threading.Event()
    found: dict[int, R] = {}
    running: dict[Future[R], int] = {}

    def check_piece() -> None:
        if given_up.is_set():
            raise CancelledError
        check()

    def take_finished() -> None:
        done: set[Future[R]] = set()
        while not done:
            done = wait(running, _LOOKING_SECONDS, FIRST_COMPLETED).done
        for future in done:
            place = running.pop(future)
            found[place] = future.result()
            after(pieces[place])

    try:
        # The number of threads applies to the thread that sets it, and to all new ones.
        with ThreadPoolExecutor(
            number, "at-once", torch.set_num_threads, (max(1, num_threads // number),)
        ) as pool:
            try:
                for place, piece in enumerate(pieces):
                    if len(running) == number:
                        take_finished()
                    check()
                    running[pool.submit(work, piece, check_piece)] = place
                while running:
                    take_finished()
            finally:
                # Leaving the pool waits for its threads. Without an error, they have nothing left to do.
                given_up.set()
    finally:
        torch.set_num_threads(num_threads)
    return [found[place] for place in range(len(pieces))]
