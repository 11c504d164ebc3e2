"""Starting runs: as the real command, or as a fork, which need not import torch again."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests import forked

from .driver import Order

LONGEST_SECONDS = 300
HUNG = -int(signal.SIGABRT)


def environment() -> dict[str, str]:
    """One thread for each run, and nothing that a kill loses."""
    return forked.environment(PYTHONUNBUFFERED="1")


def start_command(config: Path, run: Path, stderr: int | None = None) -> subprocess.Popen[str]:
    """Start ``mt train`` as a user does; what it says goes to ``<run>.stderr``, or to this descriptor."""
    with run.with_suffix(".stderr").open("a") as file:
        output = file if stderr is None else stderr
        return subprocess.Popen(
            [sys.executable, "-m", "mt", "train", "--config", str(config), "--run", str(run)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment(),
            text=True,
        )


def end_of(process: subprocess.Popen[str], seconds: float = LONGEST_SECONDS) -> int:
    """Its exit status; one that hangs is killed after a while."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return HUNG


class Driver:
    """Runs what it is told, each time in a process of `driver`."""

    def train(self, config: Path, run: Path, **fate: Any) -> int:
        """Train with what is to happen; the exit status, negative for a signal that ended it."""
        return self.call("train", "--config", config, "--run", run, run=run, **fate)

    def call(self, *arguments: str | Path, run: Path, **fate: Any) -> int:
        """Run ``mt`` with these arguments."""
        if run.exists():
            # TensorBoard orders the files of one second by the number of the process, as text.
            time.sleep(1.01 - time.time() % 1)
        order = json.dumps(asdict(Order([str(each) for each in arguments], str(run), **fate)))
        with run.with_suffix(".stderr").open("a") as file:
            process = forked.Popen(
                [sys.executable, "-m", "tests.faults.torture.driver", order],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=forked.environment(),
            )
        return end_of(process)
