"""What a run was made with: versions, machine, threads; resuming is exact only where these are the same."""

import platform
from collections.abc import Mapping
from importlib.metadata import version

import torch

import mt
from mt.training.precision import Precision


def describe_environment(device: torch.device, precision: Precision) -> dict[str, str | int]:
    """Plain names and values, for a checkpoint."""
    on_gpu = device.type == "cuda"
    return {
        "mt": mt.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tokenizers": version("tokenizers"),
        "numpy": version("numpy"),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device)
        if on_gpu
        else torch.backends.cpu.get_cpu_capability(),
        "precision": precision.name,
        "num_threads": torch.get_num_threads(),
    }


def environment_differences(then: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """What differs between two environments, as ``torch: 2.12 -> 2.13``, of what is known of both."""
    return [f"{name}: {then[name]} -> {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
