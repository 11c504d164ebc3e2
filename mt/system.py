"""What only the operating system knows or does, which no other module asks: cores, memory, locks, signals.

Where a system lacks what Linux has, such as macOS, there is another answer, or the setting is left out.
"""

import contextlib
import ctypes
import math
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

if sys.platform == "win32":
    raise ImportError("mt runs on Linux and macOS, and on Windows within WSL.")
import fcntl
import resource

# SIGHUP is sent when the terminal is closed; SLURM can send SIGUSR1 before the time limit of a job.
STOP_SIGNALS: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
RELOAD_SIGNAL: signal.Signals = signal.SIGHUP
TIME_LIMIT_SIGNAL: signal.Signals = signal.SIGALRM

# The control groups of Linux, with which containers and SLURM limit memory and cores.
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_HAS_SPIN_SETTING = bool({"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys())


def usable_cores() -> int:
    """How many cores this process may use, also within a container; part of one counts as one."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    limits = [*_limits("cpu", "cpu.max"), *_limits("cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us")]
    return min([cores, *(math.ceil(quota / period) for quota, period in limits if quota > 0)])


def usable_memory() -> int:
    """How many bytes this process may use, of all that the machine has or of its container's."""
    limits = [*_limits("memory", "memory.max"), *_limits("memory", "memory.limit_in_bytes")]
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *(limit for (limit,) in limits)])


def peak_memory() -> int:
    """The most bytes that this process has used so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def lock(file: int, *, shared: bool = False, waits: bool = True) -> None:
    """Lock an open file or folder, until it is closed or the process ends.

    Raises:
        BlockingIOError: If another process has locked it and this one does not wait.
        OSError: If the file system has no locks.
    """
    fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))


def unlock(file: int) -> None:
    """Unlock it, also for a forked child that has it open."""
    fcntl.flock(file, fcntl.LOCK_UN)


def signal_after(seconds: float) -> None:
    """Send `TIME_LIMIT_SIGNAL` to this process in so many seconds; 0 cancels that."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def wait_for_input(descriptor: int) -> None:
    """Let reading wait for input, also if another program has made the stream non-blocking."""
    os.set_blocking(descriptor, True)


def keep_freed_memory() -> None:
    """Let this process keep what it frees, where the C library is glibc."""
    # It returns large blocks to the system, which zeroes each page anew: 3 to 7 % of a step on a CPU.
    _call("mallopt", _M_MMAP_MAX, 0)
    _call("mallopt", _M_TRIM_THRESHOLD, -1)
    # Threads reuse what others have freed only in the same arena; by default there are eight per core.
    _call("mallopt", _M_ARENA_MAX, os.cpu_count() or 1)


def end_with_parent() -> None:
    """Let Linux end this process when the one that started it has died: otherwise nobody would."""
    _call("prctl", 1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def let_threads_look(times: int) -> None:
    """Set how often a thread of GNU OpenMP looks for work before it sleeps, before torch is loaded."""
    # By default 300,000 times, about 3 ms: if other programs need the cores, all becomes many times slower.
    if not _HAS_SPIN_SETTING:
        os.environ["GOMP_SPINCOUNT"] = str(times)


def _call(function: str, *numbers: int) -> None:
    """Call a function of the C library, if it has one of that name."""
    with contextlib.suppress(AttributeError):
        getattr(ctypes.CDLL(None), function)(*numbers)


def _limits(controller: str, *files: str) -> Iterator[list[int]]:
    """The numbers in these files together, of each control group around this process, in either version."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            # A group is within its parents' limits. In a container, the name may be that of the host.
            group = (CGROUPS / (controller if controllers else "") / name.lstrip("/")).relative_to(CGROUPS)
            for folder in (group, *group.parents):
                # Most groups lack the files, or have the word "max" in them.
                with contextlib.suppress(OSError, ValueError):
                    text = [(CGROUPS / folder / file).read_text() for file in files]
                    yield [int(word) for word in " ".join(text).split()]
