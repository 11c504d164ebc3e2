"""Exchange between the processes of torchrun, which all call the same functions in the same order."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mt import processes
from mt.errors import EngineError, Interrupted, MtError, RunError

T = TypeVar("T")
R = TypeVar("R")

# How long a process waits for the others within a step. NCCL compiles and connects on first use.
_STEP_TIME = {"cpu": timedelta(seconds=60), "cuda": timedelta(minutes=5)}
# How long it waits while the first one prepares the corpus, validates or saves.
_LONG_TIME = timedelta(days=7)

_is_alone = False
_long_group: dist.ProcessGroup | None = None
"""The group for objects and for long waits; the default group is for what a step exchanges."""


@contextmanager
def connected(device_type: str) -> Iterator[None]:
    """Connect the processes for the duration of the ``with`` block, in which they compute on such devices."""
    global _long_group
    if not processes.ARE_SEVERAL:
        yield
        return
    if device_type != "cpu" and torch.cuda.device_count() <= processes.LOCAL_RANK:
        raise EngineError(
            "each process needs an NVIDIA GPU of its own: start at most as many on this machine as it has "
            f"({torch.cuda.device_count()}), or compute on the CPU."
        )
    try:
        if device_type == "cuda":
            torch.cuda.set_device(processes.LOCAL_RANK)
        dist.init_process_group("nccl" if device_type == "cuda" else "gloo", timeout=_STEP_TIME[device_type])
        _long_group = dist.new_group(backend="gloo", timeout=_LONG_TIME)
        yield
        # Not after an error, because NCCL waits here for the others, which do not come.
        dist.destroy_process_group()
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        if not processes.IS_FIRST:
            # torchrun ends all others when it notices the end of one. Give the first one time to report.
            time.sleep(2)
            sys.exit(1)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise RunError(
            "another process of this run has ended, or has not answered in time; if it could report why, "
            "see above or train.log. Start the same command again; training continues from the newest "
            f"checkpoint. (The error was: {reason})"
        ) from error
    finally:
        _long_group = None


def is_lost_connection(error: Exception) -> bool:
    """Whether another process has ended, or has not answered in time."""
    return isinstance(error, RuntimeError) and (
        isinstance(error, dist.DistError) or "gloo" in str(error) or "NCCL" in str(error)
    )


def data_parallel(module: nn.Module) -> nn.Module:
    """The module to call instead of ``module``: its gradient becomes the mean over all processes."""
    if not dist.is_initialized():
        return module
    with warnings.catch_warnings():
        # The argument has a new name since torch 2.13. Our buffers grow on each process as needed.
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(module, broadcast_buffers=False, gradient_as_bucket_view=True)


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Within the ``with`` block, accumulate gradients without exchanging them."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else nullcontext()


def all_reduce(numbers: Tensor) -> Tensor:
    """The sum of each number over all processes, in one exchange within a step. It waits for no device."""
    if not dist.is_initialized():
        return numbers
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    sums = numbers.to(device, torch.float64)
    dist.all_reduce(sums)
    return sums


def broadcast(value: T) -> T:
    """The first process's value, in every process."""
    return all_gather(value)[0]


def all_gather(value: T) -> list[T]:
    """The values of all processes, by rank."""
    if not dist.is_initialized():
        return [value]
    values = [value] * processes.SIZE
    dist.all_gather_object(values, value, group=_long_group)
    return values


def barrier() -> None:
    """Wait for all processes, however long it takes them."""
    if dist.is_initialized():
        dist.barrier(group=_long_group)


def barrier_after(work: Callable[[], T]) -> T:
    """The result of ``work`` in this process, once all have done theirs; all raise the error of any."""
    error: MtError | Interrupted | None = None
    try:
        result = work()
    except (MtError, Interrupted) as raised:
        error = raised
    if errors := [error for error in all_gather(error) if error is not None]:
        raise errors[0]
    return result


def first_rank_first(work: Callable[[], T]) -> T:
    """Do the work in the first process, then in the first on each other machine, then in the rest."""
    turn = 0 if processes.IS_FIRST else 1 if processes.LOCAL_RANK == 0 else 2
    for current in range(3):
        if current == turn:
            result = work()
        barrier()
    return result


@contextmanager
def alone() -> Iterator[None]:
    """Within the ``with`` block, `scatter` leaves all to this process, while the others wait for it."""
    global _is_alone
    _is_alone = True
    try:
        yield
    finally:
        _is_alone = False


def scatter(pieces: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """Distribute the pieces, which all processes have; each returns all results, in order."""
    if _is_alone or not dist.is_initialized():
        return list(map(work, pieces))
    share = pieces[processes.RANK :: processes.SIZE]
    results = [iter(part) for part in all_gather(barrier_after(lambda: list(map(work, share))))]
    return [next(results[index % processes.SIZE]) for index in range(len(pieces))]
