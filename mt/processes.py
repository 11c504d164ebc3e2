"""Which of the processes started by torchrun this one is; it imports no torch."""

import os

# Other launchers also set RANK, for their own programs; what inherits only a part of these is on its own.
ARE_LAUNCHED = {"TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
"""Whether torchrun has started this process."""

SIZE = int(os.environ["WORLD_SIZE"]) if ARE_LAUNCHED else 1
"""How many processes there are."""
RANK = int(os.environ["RANK"]) if ARE_LAUNCHED else 0
"""The number of this process among all, from 0."""
LOCAL_RANK = int(os.environ["LOCAL_RANK"]) if ARE_LAUNCHED else 0
"""The number of this process on its machine, which is also the number of its GPU."""
ARE_SEVERAL = SIZE > 1
"""Whether there is any other process."""
IS_FIRST = RANK == 0
"""Whether this is the process that writes the run and communicates with the user."""
