"""On what, and with which versions, it was measured."""

import os
import platform
import subprocess
from pathlib import Path

from scripts.benchmark.process import REPOSITORY

PROBE = """
import importlib.metadata as m
for name in {names}:
    try: print(name, m.version(name))
    except m.PackageNotFoundError: pass
"""


def processor() -> str:
    """The name of the processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def graphics() -> str:
    """The name of the CUDA device."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def versions(python: str, names: tuple[str, ...]) -> list[str]:
    """Those of these packages that the environment of this Python has, as ``name version``."""
    found = subprocess.run(
        [python, "-c", PROBE.format(names=names)], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    return found.stdout.splitlines()


def scheduling() -> str:
    """The scheduling class of this process, and its niceness."""
    if not hasattr(os, "sched_getscheduler"):
        return "Scheduling unknown"
    names = {os.SCHED_OTHER: "other", os.SCHED_BATCH: "batch", os.SCHED_IDLE: "idle"}
    name = names.get(os.sched_getscheduler(0), "real-time")
    return f"Scheduling class {name}, nice {os.getpriority(os.PRIO_PROCESS, 0)}"


def load() -> str:
    """The mean number of processes that wanted to run in the last minute."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
