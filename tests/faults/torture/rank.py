"""`mt`, of which one process tells where it is: python -m tests.faults.torture.rank PLAN.json train ..."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mt.data.batches.stream
import mt.training.run
import mt.training.session
import mt.training.train_state
from mt import processes
from mt.__main__ import main
from mt.training.session import Session

POINTS: dict[str, tuple[Any, str]] = {
    "start-up": (mt.training.run, "prepare"),
    "epoch making": (mt.data.batches.stream, "epoch_batches"),
    "training": (mt.training.train_state, "accumulate_gradients"),
    "validation": (mt.training.session, "validate"),
    "saving": (Session, "save"),
}
"""What a process is doing, and the function that does it."""

LONGEST_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """What is to be told."""

    rank: int
    point: str
    occurrence: int
    """Which time the process is there."""
    stays: bool
    """Whether it waits there for what happens to it."""
    told: str
    """The file that is written then."""


def watch(plan: Plan) -> None:
    """Tell when the process is where the plan says."""
    owner, name = POINTS[plan.point]
    really: Callable[..., Any] = getattr(owner, name)
    passed = 0

    def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal passed
        passed += 1
        if passed == plan.occurrence:
            Path(plan.told).write_text(str(os.getpid()))
            if plan.stays:
                time.sleep(LONGEST_SECONDS)
        return really(*arguments, **keywords)

    setattr(owner, name, call)


if __name__ == "__main__":
    plan = Plan(**json.loads(Path(sys.argv.pop(1)).read_text()))
    if plan.rank == processes.rank():
        watch(plan)
    main()
