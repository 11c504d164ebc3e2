"""The protocol between a side and the benchmark: one JSON object per line, commands in and answers out.

A side trains in a loop of its own, be it ours or a toolkit's, and calls `TrainingSession.after_step` after
each step. There it is timed, and there it waits, with its memory as it is, while others have their turn.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from scripts.benchmark.sizes import Size
from scripts.benchmark.workload import Workload

STATUS = Path("/proc/self/status")

JobPrecision = Literal["float32", "bf16"]


@dataclass(frozen=True)
class Job:
    """What a side is to train, with the folder of the workload and the weights."""

    folder: Path
    size: Size
    device: str
    precision: JobPrecision = "float32"

    @property
    def workload(self) -> Workload:
        return Workload.load(self.folder)

    @property
    def first_weights(self) -> Path:
        """The weights with which all sides that can hold them begin."""
        return self.folder / f"{self.size.name}.safetensors"


class Channel:
    """The worker's end of the pipe. Whatever else a library prints to stdout goes to stderr."""

    def __init__(self) -> None:
        self._answers: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def receive(self) -> dict[str, float]:
        """The next command; the process ends where there is none."""
        line = sys.stdin.readline()
        if not line:
            # Not sys.exit: a toolkit may catch it, or save a checkpoint first.
            os._exit(0)
        command: dict[str, float] = json.loads(line)
        return command

    def send(self, answer: Mapping[str, Any]) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()


@dataclass
class TrainingSession:
    """Times the steps of a side's own training loop, and lets it run only when it is its turn."""

    channel: Channel
    device: str
    _command: dict[str, float] = field(default_factory=dict)
    _steps: int = 0
    _tgt_tokens: int = 0
    _started: float = 0.0

    def ready(self, **facts: float) -> None:
        """Report that the model is ready, and wait for the first command."""
        self.channel.send(facts)
        self._await_command()

    def after_step(self, tgt_tokens: int) -> None:
        """Count a step with its real target tokens; at the end of the turn answer, and wait for the next."""
        self._steps += 1
        self._tgt_tokens += tgt_tokens
        is_over = self._steps >= self._command.get("steps", 1)
        if is_over and time.perf_counter() - self._started >= self._command.get("seconds", 0.0):
            self._synchronize()
            seconds = time.perf_counter() - self._started
            answer = {"tgt_tokens": self._tgt_tokens, "seconds": seconds, "peak_mb": self._peak_mb()}
            self.channel.send(answer)
            self._await_command()

    def _await_command(self) -> None:
        self._command = self.channel.receive()
        self._steps = self._tgt_tokens = 0
        self._synchronize()
        self._started = time.perf_counter()

    def _synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def _peak_mb(self) -> float:
        """The most memory that this process has ever held: resident on a CPU, allocated on CUDA."""
        if self.device == "cuda":
            import torch

            return torch.cuda.max_memory_allocated() / 2**20
        # Not ru_maxrss where /proc is there: a child begins with its parent's.
        if STATUS.exists():
            line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
            return int(line.split()[1]) / 2**10
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
