"""The protocol between a side and the benchmark: one JSON object per line, commands in and answers out.

A side trains in a loop of its own, be it ours or a toolkit's, and calls `TrainingSession.after_step` after
each step. There it is timed, and there it waits, with its memory as it is, while others have their turn.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from scripts.benchmark.sizes import Size, training_flops
from scripts.benchmark.workload import Workload

STATUS = Path("/proc/self/status")

JobPrecision = Literal["float32", "bf16"]


@dataclass(frozen=True)
class Job:
    """What a side is to do.

    Attributes:
        folder: The folder of the workload and the weights.
        size: The size of the model to train.
        device: ``cpu`` or ``cuda``.
        precision: ``float32``, or ``bf16`` for mixed precision.
    """

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

    def receive(self) -> dict[str, Any]:
        """The next command; the process ends where there is none."""
        line = sys.stdin.readline()
        if not line:
            # Not sys.exit: a toolkit may catch it, or save a checkpoint first.
            os._exit(0)
        command: dict[str, Any] = json.loads(line)
        return command

    def send(self, answer: Mapping[str, Any]) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()


@dataclass
class Counts:
    """What was computed between two answers."""

    steps: int = 0
    src_tokens: int = 0
    src_slots: int = 0
    tgt_tokens: int = 0
    tgt_slots: int = 0
    flops: float = 0.0


@dataclass
class TrainingSession:
    """Times the steps of a side's own training loop, and lets it run only when it is its turn."""

    channel: Channel
    job: Job
    tgt_vocabulary_size: int
    _counts: Counts = field(default_factory=Counts)
    _command: dict[str, Any] = field(default_factory=dict)
    _started: float = 0.0

    def ready(self, **facts: Any) -> None:
        """Report that the model is ready, and wait for the first command."""
        self.channel.send({"ready": True, **facts})
        self._await_command()

    def after_step(
        self,
        src_lengths: Sequence[int],
        tgt_lengths: Sequence[int],
        *,
        src_slots: int,
        tgt_slots: int,
    ) -> None:
        """Count a step; at the end of the turn answer, and wait for the next turn.

        Args:
            src_lengths: Real source tokens of each sentence.
            tgt_lengths: Real target tokens of each sentence.
            src_slots: Source positions that were computed, padding included.
            tgt_slots: Likewise of the target.
        """
        counts = self._counts
        counts.steps += 1
        counts.src_tokens += int(sum(src_lengths))
        counts.tgt_tokens += int(sum(tgt_lengths))
        counts.src_slots += src_slots
        counts.tgt_slots += tgt_slots
        counts.flops += training_flops(self.job.size, self.tgt_vocabulary_size, src_lengths, tgt_lengths)
        is_over = counts.steps >= self._command.get("steps", 0)
        if is_over and time.perf_counter() - self._started >= self._command.get("seconds", 0.0):
            synchronize(self.job.device)
            seconds = time.perf_counter() - self._started
            self.channel.send({**vars(counts), "seconds": seconds, "peak_mb": peak_mb(self.job.device)})
            self._await_command()

    def _await_command(self) -> None:
        self._command = self.channel.receive()
        self._counts = Counts()
        synchronize(self.job.device)
        self._started = time.perf_counter()


def serve(channel: Channel, commands: Mapping[str, Callable[..., Mapping[str, Any]]]) -> None:
    """Answer ``{"do": NAME, ...}`` with what the function of that name gives for the other entries."""
    channel.send({"ready": True})
    while True:
        command = channel.receive()
        channel.send(commands[command.pop("do")](**command))


def synchronize(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def peak_mb(device: str) -> float:
    """The most memory that this process has ever held: resident on a CPU, allocated on CUDA."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    # Not ru_maxrss where /proc is there: a child begins with its parent's.
    if STATUS.exists():
        return _status_mb("VmHWM")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def resident_mb(device: str) -> float:
    """The memory that this process holds now; without /proc the most that it has ever held."""
    if device == "cuda":
        import torch

        return torch.cuda.memory_allocated() / 2**20
    return _status_mb("VmRSS") if STATUS.exists() else peak_mb(device)


def _status_mb(field: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 2**10
