"""Python programs that import mt, in processes of their own."""

import os
import subprocess
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parent.parent


def environment(**more: str) -> dict[str, str]:
    """This process's environment, with one thread, this mt, and what is given."""
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | more


class Popen(subprocess.Popen[Any]):
    """A process with pipes on all sides."""

    stdin: IO[Any]
    stdout: IO[Any]
    stderr: IO[Any]
