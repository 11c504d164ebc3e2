"""The first part: is there a CUDA device, and which. Ends with code 2 if there is none."""

import platform
import subprocess
import sys

import torch

from scripts.benchmark import machine
from scripts.gpu_check.job import Job, head, row

PACKAGES = ("torch", "triton", "transformers", "ctranslate2")


def main() -> int:
    job = Job.given()
    if job.device == "cuda" and not torch.cuda.is_available():
        print(
            f"torch {torch.__version__} finds no CUDA device on this machine. With --device cpu the check "
            "itself can be tried.",
            file=sys.stderr,
        )
        return 2
    head("", "")
    if job.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        row("device", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")
        row("compute capability", f"{properties.major}.{properties.minor}")
        row("multiprocessors", properties.multi_processor_count)
        row("driver, CUDA", f"{_driver()}, {torch.version.cuda}")
    row("processor", f"{machine.processor()}, {machine.num_cores()} cores")
    row("Python", platform.python_version())
    row("packages", ", ".join(machine.versions(sys.executable, PACKAGES)))
    return 0


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
