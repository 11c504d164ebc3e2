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
        from mt.device import attend_to_short_sequences

        # As mt does it, and for all sides: with cuDNN, each of them mostly waits for its plans.
        attend_to_short_sequences()
    importlib.import_module(f"scripts.benchmark.sides.{side}").run(channel, job)


if __name__ == "__main__":
    main()
