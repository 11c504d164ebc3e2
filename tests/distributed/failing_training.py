"""`mt train`, of which one process fails: python failing_training.py FOLDER RANK POINT EVENT train ..."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mt import processes
from mt.__main__ import main
from mt.checkpoint.store import CheckpointStore
from mt.errors import DataError
from mt.training.session import Session
from mt.training.train_state import TrainState

folder, rank, point, event = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
del sys.argv[1:5]


def happens_in(owner: Any, name: str, at: Callable[..., bool] = lambda *_, **__: True) -> None:
    """Let the event happen when the function is called."""
    function = getattr(owner, name)

    def failing(*arguments: Any, **named: Any) -> Any:
        if at(*arguments) and not (folder / "happened").exists():
            _happen(*arguments)
        return function(*arguments, **named)

    setattr(owner, name, failing)


def _happen(*arguments: Any) -> None:
    (folder / "happened").write_text(str(time.time()))
    match event:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "kill agent":
            os.kill(os.getppid(), signal.SIGKILL)
        case "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        case "terminate agent":
            os.kill(os.getppid(), signal.SIGTERM)
        case "error":
            raise DataError("made up for this test.")
        case "NaN":
            smooth(arguments[0], float("nan"))
        case _:
            raise AssertionError(event)


def smooth(state: TrainState, label_smoothing: float) -> None:
    state.training = state.training.model_copy(update={"label_smoothing": label_smoothing})


def record_sums(self: TrainState, *arguments: Any, **named: Any) -> Any:
    """Write the sum of all weights after each step."""
    result = finish(self, *arguments, **named)
    smooth(self, 0.1)
    with (folder / f"sums.{processes.RANK}").open("a") as file:
        file.write(f"{sum(float(weight.detach().sum()) for weight in self.objective.parameters())!r}\n")
    return result


finish = TrainState.finish
TrainState.finish = record_sums  # type: ignore[method-assign]
(folder / f"pid.{processes.RANK}").write_text(str(os.getpid()))
torch.set_num_threads(1)
if rank == processes.RANK:
    match point:
        case "training":
            happens_in(TrainState, "launch", lambda state, *_: state.counters.step == 4)
        case "validation":
            happens_in(Session, "_validation_batches")
        case "saving":
            # With two steps that are not saved yet.
            happens_in(CheckpointStore, "save", lambda _, checkpoint, *__: checkpoint.step == 6)
main()
