"""The machine and the versions that are measured."""

import os
import platform
import subprocess
from pathlib import Path

import torch

STATISTICS = Path("/proc/stat")
PROBE = """
import importlib.metadata as m
for name in {names}:
    try: print(name, m.version(name))
    except m.PackageNotFoundError: pass
"""


def processor() -> str:
    """The name of the processor, and the widest instructions that torch uses on it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    bf16 = [name for name in ("amx_bf16", "avx512_bf16") if torch.cpu.get_capabilities().get(name)]
    return f"{name} ({', '.join([torch.backends.cpu.get_cpu_capability(), *bf16])})"


def versions(python: str, names: tuple[str, ...]) -> list[str]:
    """The versions of these packages in this Python's environment, as ``name version``; none without one."""
    if not Path(python).exists():
        return []
    command = [python, "-c", PROBE.format(names=names)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


class StolenTime:
    """The time that the host of a virtual machine gives to others: of more than 5 %, distrust the figures."""

    def __init__(self) -> None:
        self._stolen, self._all = _ticks()

    def share(self) -> float:
        """The share of all processors' time since the beginning; 0 where the system does not say."""
        stolen, of_all = _ticks()
        return (stolen - self._stolen) / max(of_all - self._all, 1)

    def __str__(self) -> str:
        return f"The host gave {self.share():.1%} of the processors' time to others."


def _ticks() -> tuple[int, int]:
    """Ticks of all processors since the system started: those that were stolen, and all."""
    if not STATISTICS.exists():
        return 0, 0
    # user, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen: see proc(5).
    ticks = [int(number) for number in STATISTICS.read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
