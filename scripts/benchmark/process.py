"""The benchmark's end of the pipe: one process for each side, of which only one works at a time."""

import json
import os
import subprocess
import sys
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scripts.benchmark.session import Job

REPOSITORY = Path(__file__).parent.parent.parent


class SideError(Exception):
    """A side could not do what it was asked."""


class Worker:
    """A side in a process of its own, so that its peak memory is its own."""

    def __init__(self, side: str, job: Job, *, threads: int, python: str = sys.executable) -> None:
        self.side = side
        self._log = job.folder / f"{side}-{job.size.name}-{job.precision}.log"
        given = asdict(job) | {"folder": str(job.folder)}
        environment = os.environ | {
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", "scripts.benchmark.worker", side, json.dumps(given)],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.facts = self._receive()

    def ask(self, **command: float) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        return self._receive()

    def close(self) -> None:
        """End the process, which it does by itself when its pipe closes."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self) -> SideError:
        self._process.wait()
        with self._log.open(errors="replace") as log:
            last = "".join(deque(log, maxlen=3)).strip()
        return SideError(f"{self.side} ended with code {self._process.returncode}: {last} (see {self._log})")
