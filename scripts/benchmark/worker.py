"""The process of one side: ``python -m scripts.benchmark.worker SIDE JOB``, spoken to through its pipes."""

import importlib
import json
import sys
from pathlib import Path

from scripts.benchmark.session import Channel, Job
from scripts.benchmark.sizes import Size


def main() -> None:
    channel = Channel()
    side, given = sys.argv[1], json.loads(sys.argv[2])
    job = Job(**given | {"folder": Path(given["folder"]), "size": Size(**given["size"])})
    if job.device == "cuda":
        from mt.device import choose_device

        # It selects the kernels of attention for all sides: with cuDNN, each mostly waits for its plans.
        choose_device("cuda")
    importlib.import_module(f"scripts.benchmark.sides.{side}").run(channel, job)


if __name__ == "__main__":
    main()
