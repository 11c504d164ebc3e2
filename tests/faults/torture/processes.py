"""Starting runs: as the real command, or as a child of the driver, which need not import torch again."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .driver import HUNG, LONGEST_SECONDS, Order

ROOT = Path(__file__).parents[3]


def environment() -> dict[str, str]:
    """One thread for each run, so that two at a time do not fight, and all sum in the same order."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


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
    """A process of `driver`, which runs what it is told, one after another."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.torture.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            cwd=ROOT,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def train(self, config: Path, run: Path, **fate: Any) -> int:
        """Train with what is to happen; the exit status, negative for a signal that ended it."""
        return self.call("train", "--config", config, "--run", run, run=run, **fate)

    def call(self, *arguments: str | Path, run: Path, **fate: Any) -> int:
        """Run ``mt`` with these arguments."""
        if run.exists():
            # TensorBoard orders the files of one second by the number of the process, as text.
            time.sleep(1.01 - time.time() % 1)
        stderr = str(run.with_suffix(".stderr"))
        order = Order([str(each) for each in arguments], str(run), stderr, **fate)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())
