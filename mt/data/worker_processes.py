"""Work done by other processes, with results in the order of the tasks.

The processes are spawned, not forked: the threads of `tokenizers`, `pyarrow` and torch do not survive a fork.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from types import ModuleType
from typing import TypeVar

from mt.errors import DataError

T = TypeVar("T")
R = TypeVar("R")

# More processes would wait for the one that puts the results together.
MOST_BY_DEFAULT = 16


def default_num_processes() -> int:
    """One for each core that this process may use, up to `MOST_BY_DEFAULT`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_BY_DEFAULT)


def map_in_order(
    function: Callable[[T], R], tasks: Iterable[T], num_processes: int
) -> Generator[R, None, None]:
    """The results of ``function`` for all tasks, in their order; closing the iterator ends the processes.

    Args:
        function: A module-level function. Its exceptions are raised here, at their place in the order.
        tasks: They are taken one by one, a few ahead of the next result.
        num_processes: How many processes compute.

    Raises:
        DataError: If a process was killed.
    """
    context = multiprocessing.get_context("spawn")
    end_of_work, work = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        num_processes, mp_context=context, initializer=_end_with, initargs=(end_of_work,)
    )
    pending: deque[Future[R]] = deque()
    try:
        for task in tasks:
            with _inherited_by_workers():
                pending.append(pool.submit(function, task))
            if len(pending) > 2 * num_processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        pool.shutdown()
    except BrokenProcessPool:
        raise DataError(
            f"one of the {num_processes} processes that read the corpus was killed, perhaps because the "
            "memory was full: set data.workers to a smaller number, or to 1 to read it in this process."
        ) from None
    finally:
        # After an error, nobody waits for the remaining work.
        work.close()
        pool.shutdown(cancel_futures=True)
        end_of_work.close()


@contextlib.contextmanager
def _inherited_by_workers() -> Iterator[None]:
    """Start processes here that ignore Ctrl-C and do not import the main module.

    Ctrl-C reaches all processes of a terminal, and this process ends the others. The main module may be a
    user's script that does its work when it is imported.
    """
    main = sys.modules["__main__"]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end_with(work: Connection) -> None:
    """End this process when the other end of ``work`` is closed, even if its owner dies."""

    def wait() -> None:
        work.poll(None)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
