"""Memory of a process or of a GPU: what is free, what is taken, and the peak since it was last asked."""

import re
from pathlib import Path

import torch

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_MEMINFO = Path("/proc/meminfo")


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had there; None where nothing tells."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return _field(_MEMINFO, "MemAvailable") if device.type == "cpu" else None


def taken_memory(device: torch.device) -> int | None:
    """Bytes taken: by tensors on CUDA, by the whole process on the CPU."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return _field(_STATUS, "VmRSS") if device.type == "cpu" else None


def peak_memory(device: torch.device) -> int | None:
    """The most that was taken since `forget_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _field(_STATUS, "VmHWM") if device.type == "cpu" else None


def forget_peak(device: torch.device) -> bool:
    """Let the peak begin anew; return whether that can be done here."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        # Linux: 5 sets the peak to what is taken now (man 5 proc).
        _CLEAR.write_text("5")
    except OSError:
        return False
    return device.type == "cpu"


def _field(file: Path, name: str) -> int | None:
    """A line such as ``VmRSS:  12345 kB`` of a file that Linux has, in bytes."""
    try:
        match = re.search(rf"^{name}:\s+(\d+) kB$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None
