"""Which of the processes started by torchrun this one is; a process on its own is the first and only one.

A *rank* is the number of a process among all of them, counted from 0; the local rank, among those on its
machine.
"""

import ctypes
import os
import signal
import sys

# Other launchers also set RANK, for their own programs.
_IS_OURS = "TORCHELASTIC_RUN_ID" in os.environ
_LAUNCHER = os.getppid()
_SET_PARENT_DEATH_SIGNAL = 1
_WAITS_AS_TOLD = bool({"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys())


def size() -> int:
    """How many processes there are."""
    return _number("WORLD_SIZE", 1)


def rank() -> int:
    """The number of this process, from 0 to ``size() - 1``."""
    return _number("RANK", 0)


def local_rank() -> int:
    """The number of this process on its machine, which is also the number of its GPU."""
    return _number("LOCAL_RANK", 0)


def are_several() -> bool:
    """Whether there is any other process."""
    return size() > 1


def is_first() -> bool:
    """Whether this is the process that writes the run and communicates with the user."""
    return rank() == 0


def is_first_on_machine() -> bool:
    """Whether this is the process that prepares what all processes on its machine read."""
    return local_rank() == 0


def end_with_launcher() -> None:
    """Let Linux end this process when torchrun has died, because otherwise nobody would."""
    if sys.platform == "linux" and _IS_OURS:
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != _LAUNCHER:
            os.kill(os.getpid(), signal.SIGKILL)


def let_threads_look(times: int) -> None:
    """Set how often a thread of GNU OpenMP looks for work before it sleeps; call this before torch is loaded.

    By default that is 300,000 times, about three milliseconds: waking up then costs nothing, but if other
    programs need the same cores, everything becomes many times slower. An existing environment setting is
    kept.
    """
    if not _WAITS_AS_TOLD:
        os.environ["GOMP_SPINCOUNT"] = str(times)


def _number(variable: str, otherwise: int) -> int:
    return int(os.environ[variable]) if _IS_OURS else otherwise
