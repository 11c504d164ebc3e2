"""What only the operating system knows or does: cores, memory, and settings of a process.

No other module asks it. Where a system lacks what Linux has (macOS has no ``sched_getaffinity``, ``/proc``,
``prctl`` or ``mallopt``), there is another answer, or the setting is left out.
"""

import contextlib
import ctypes
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

# The control groups of Linux, with which containers and SLURM limit memory and cores.
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")

# From glibc's malloc.h, and from Linux's prctl.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_PR_SET_PDEATHSIG = 1
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


def keep_freed_memory() -> None:
    """Let this process keep what it frees, where the C library is glibc."""
    # It returns large blocks to the system, which zeroes each page anew: 3 to 7 % of a step on a CPU.
    _call("mallopt", _M_MMAP_MAX, 0)
    _call("mallopt", _M_TRIM_THRESHOLD, -1)
    # Threads reuse what others have freed only in the same arena; by default there are eight per core.
    _call("mallopt", _M_ARENA_MAX, os.cpu_count() or 1)


def end_with_parent() -> None:
    """Let Linux end this process when the one that started it has died."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)


def let_threads_look(times: int) -> None:
    """Set how often a thread of GNU OpenMP looks for work before it sleeps, before torch is loaded."""
    # By default 300,000 times, about 3 ms: if other programs need the cores, all becomes many times slower.
    if not _HAS_SPIN_SETTING:
        os.environ["GOMP_SPINCOUNT"] = str(times)


def _call(function: str, *numbers: int) -> None:
    """Call a function of the C library, if it has one of that name."""
    with contextlib.suppress(AttributeError):
        getattr(ctypes.CDLL(None), function)(*numbers)


def _limits(controller: str, *files: str) -> list[list[int]]:
    """The numbers in these files together, for each of the control groups in which this process is."""
    limits = []
    for folder in _cgroups(controller):
        # Most groups lack the files, or have the word "max" in them.
        with contextlib.suppress(OSError, ValueError):
            limits.append([int(word) for file in files for word in (folder / file).read_text().split()])
    return limits


def _cgroups(controller: str) -> Iterator[Path]:
    """The folders of the control groups in which this process is, of version 2 and of version 1."""
    with contextlib.suppress(OSError):
        for line in OWN_CGROUPS.read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                # A group is within its parents' limits. In a container, the name may be that of the host.
                root = CGROUPS / (controller if controllers else "")
                group = root / name.lstrip("/")
                yield from (group, *(parent for parent in group.parents if parent.is_relative_to(root)))
