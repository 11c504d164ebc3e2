"""Communication between the processes of a run; in a single process, values are returned unchanged.

All processes call the same functions in the same order. torchrun starts them, ends all of them when one
fails, and is the only launcher (https://docs.pytorch.org/docs/stable/elastic/run.html).
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from mt import processes
from mt.errors import DeviceError, Interrupted, MtError, TrainingError

T = TypeVar("T")
R = TypeVar("R")

# How long a process waits for the others within a step. NCCL compiles and connects on first use.
STEP_TIME = {"cpu": timedelta(seconds=60), "cuda": timedelta(minutes=5)}
# How long it waits while the first one prepares the corpus, validates or saves.
LONG_TIME = timedelta(days=7)
_FIRST_WORD_SECONDS = 2.0
# How often a process checks whether another one was asked to stop.
_HEARING_SECONDS = 1.0
_STOP, _DEVICE = "mt/stop", "mt/device"

_patient: dist.ProcessGroup | None = None
"""The group for objects and for long waits; the default group is for what a step exchanges."""
_board: Any = None
"""The store that any process may write and read without waiting for the others."""
_read_at = 0.0


@contextmanager
def connected(device_type: str) -> Iterator[None]:
    """Connect the processes for the duration of the ``with`` block, in which they compute on such devices."""
    global _patient, _board
    if not processes.are_several():
        yield
        return
    if device_type not in STEP_TIME:
        raise DeviceError(f"several processes cannot work together on {device_type}: use one, or the CPU.")
    if device_type == "cuda" and processes.local_rank() >= torch.cuda.device_count():
        raise DeviceError(
            "each process needs a GPU of its own: start at most as many processes on this machine as it has "
            f"GPUs ({torch.cuda.device_count()}), or compute on the CPU."
        )
    limit = STEP_TIME[device_type]
    is_sound = False
    try:
        _board, rank, size = next(rendezvous("env://", timeout=limit))
        _refuse_other_device(device_type)
        if device_type == "cuda":
            torch.cuda.set_device(processes.local_rank())
        backend = "nccl" if device_type == "cuda" else "gloo"
        dist.init_process_group(backend, store=_board, rank=rank, world_size=size, timeout=limit)
        _patient = dist.new_group(backend="gloo", timeout=LONG_TIME)
        yield
        is_sound = True
    except SystemExit as end:
        is_sound = not end.code
        raise
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        if not processes.is_first():
            # torchrun ends all others when it notices the end of one. Give the first one time to report.
            time.sleep(_FIRST_WORD_SECONDS)
            sys.exit(1)
        raise TrainingError(
            "another process of this run has ended, or has not answered in time; if it could report why, "
            "see above or train.log. Start the same command again; training continues from the newest "
            f"checkpoint. (The error was: {_last_line(error)})"
        ) from error
    finally:
        _patient = _board = None
        # NCCL waits here for the other processes, which do not come after an error in this one.
        if dist.is_initialized() and (is_sound or dist.get_backend() != "nccl"):
            dist.destroy_process_group()


def _last_line(error: Exception) -> str:
    """What an error of the network says last, which is its reason if it has one."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _refuse_other_device(device_type: str) -> None:
    """Check that all processes compute on the same kind of device, because otherwise they cannot connect."""
    if processes.is_first():
        _board.set(_DEVICE, device_type)
    elif (first := _board.get(_DEVICE).decode()) != device_type:
        raise TrainingError(
            f"this process computes on {device_type}, but the first one on {first}. Choose a device that all "
            "machines have."
        )


def wrap(objective: nn.Module) -> nn.Module:
    """The module to call instead of ``objective``: its gradient becomes the mean over all processes."""
    if not dist.is_initialized():
        return objective
    with warnings.catch_warnings():
        # The argument has a new name since torch 2.13. Our buffers grow on each process as needed.
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(objective, broadcast_buffers=False, gradient_as_bucket_view=True)


def keep_to_oneself(wrapped: nn.Module) -> AbstractContextManager[None]:
    """Within the ``with`` block, accumulate gradients without exchanging them."""
    if isinstance(wrapped, DistributedDataParallel):
        return wrapped.no_sync()
    return nullcontext()


def total(numbers: Tensor) -> Tensor:
    """The sum of each number over all processes, in one exchange within a step. It waits for no device."""
    if not dist.is_initialized():
        return numbers
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    sums = numbers.to(device, torch.float64)
    dist.all_reduce(sums)
    return sums


def agree(value: T) -> T:
    """The first process's value, in every process."""
    if not dist.is_initialized():
        return value
    values = [value]
    dist.broadcast_object_list(values, group=_patient)
    return values[0]


def wait() -> None:
    """Wait for all processes, however long it takes them."""
    if dist.is_initialized():
        dist.barrier(group=_patient)


def in_turns(work: Callable[[], T]) -> T:
    """Do the work in the first process, then in the first one on each other machine, then in the rest.

    The later ones find what the earlier ones have left on disk.
    """
    turn = 0 if processes.is_first() else 1 if processes.is_first_on_machine() else 2
    results = []
    for number in range(3 if dist.is_initialized() else 1):
        if number == turn:
            results.append(work())
        wait()
    return results[0]


def deal(pieces: Sequence[T], work: Callable[[Sequence[T]], list[R]]) -> list[R]:
    """Distribute the pieces, which are the same in all processes; return all results, in order, in each one.

    ``work`` returns the results of a share of the pieces, in order.
    """
    if not dist.is_initialized():
        return work(pieces)
    share = pieces[processes.rank() :: processes.size()]
    results = [iter(part) for part in gather(together(lambda: work(share)))]
    return [next(results[number % processes.size()]) for number in range(len(pieces))]


def together(work: Callable[[], T]) -> T:
    """The result of ``work`` in this process, once all processes are done, however long it takes."""
    done: list[T] = []
    error: MtError | Interrupted | None = None
    try:
        done.append(work())
    except (MtError, Interrupted) as raised:
        error = raised
    for each in gather(error):
        if each is not None:
            raise each
    return done[0]


def has_heard(stop: bool) -> bool:
    """Whether any process has been asked to ``stop``; other processes notice within a second.

    It needs no exchange, so the processes find out at different times.
    """
    global _read_at
    if _board is None:
        return stop
    if stop:
        _board.set(_STOP, "")
    elif time.monotonic() - _read_at >= _HEARING_SECONDS:
        _read_at = time.monotonic()
        return bool(_board.check([_STOP]))
    return stop


def agreed(items: Iterator[T]) -> Iterator[T]:
    """The items of the first process, in every process; those of the others are not requested."""
    if not dist.is_initialized():
        yield from items
        return
    while received := agree(list(islice(items, 1)) if processes.is_first() else []):
        yield from received


def gather(value: T) -> list[T]:
    """The values of all processes, by rank."""
    if not dist.is_initialized():
        return [value]
    values = [value] * processes.size()
    dist.all_gather_object(values, value, group=_patient)
    return values


def is_lost_connection(error: Exception) -> bool:
    """Whether another process has ended, or has not answered in time."""
    if not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or "gloo" in str(error) or "NCCL" in str(error)
