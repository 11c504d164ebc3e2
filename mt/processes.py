"""Which of the processes started by torchrun this one is; it imports no torch."""

import ctypes
import os
import signal
import sys

# Other launchers also set RANK, for their own programs; what inherits only a part of these is on its own.
_IS_TORCHRUN = {"TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
_HAS_SPIN_SETTING = bool({"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys())

SIZE = int(os.environ["WORLD_SIZE"]) if _IS_TORCHRUN else 1
"""How many processes there are."""
RANK = int(os.environ["RANK"]) if _IS_TORCHRUN else 0
"""The number of this process among all, from 0."""
LOCAL_RANK = int(os.environ["LOCAL_RANK"]) if _IS_TORCHRUN else 0
"""The number of this process on its machine, which is also the number of its GPU."""
ARE_SEVERAL = SIZE > 1
"""Whether there is any other process."""
IS_FIRST = RANK == 0
"""Whether this is the process that writes the run and communicates with the user."""


def end_with_launcher() -> None:
    """Let Linux end this process when torchrun has died, because otherwise nobody would."""
    if sys.platform == "linux" and _IS_TORCHRUN:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def let_threads_look(times: int) -> None:
    """Set how often a thread of GNU OpenMP looks for work before it sleeps, before torch is loaded."""
    # By default 300,000 times, about 3 ms: if other programs need the cores, all becomes many times slower.
    if not _HAS_SPIN_SETTING:
        os.environ["GOMP_SPINCOUNT"] = str(times)
