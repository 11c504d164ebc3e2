"""The fastest that this machine multiplies matrices, with which achieved arithmetic is compared."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from mt.transformer.kernels.linear import product
from scripts.benchmark.session import Channel, Job, serve, synchronize

SHAPES = {
    "cpu": ((2048, 2048, 2048), (4096, 1024, 4096), (4096, 512, 2048), (4096, 256, 8192)),
    "cuda": ((8192, 8192, 8192), (16384, 4096, 16384), (32768, 2048, 8192)),
}
SECONDS_A_SHAPE = 0.5


def gigaflops(device: str, precision: str) -> float:
    """Best of several large products, by the library that is faster."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    best = 0.0
    for rows, inner, columns in SHAPES[device]:
        a = torch.randn(rows, inner, device=device, dtype=dtype)
        b = torch.randn(inner, columns, device=device, dtype=dtype)
        product(a, b)
        synchronize(device)
        began = time.perf_counter()
        while time.perf_counter() - began < SECONDS_A_SHAPE:
            started = time.perf_counter()
            product(a, b)
            synchronize(device)
            best = max(best, 2e-9 * rows * inner * columns / (time.perf_counter() - started))
    return best


def run(channel: Channel, job: Job) -> None:
    def measure() -> Mapping[str, Any]:
        return {"gigaflops": gigaflops(job.device, job.precision)}

    serve(channel, {"measure": measure})
