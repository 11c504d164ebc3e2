"""The types of fixtures that make or call something, in the words of the tests that take them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mt.checkpoint.record import Checkpoint
from mt.config.config import Config
from mt.data.batches.batch import Batch
from mt.run_directory import RunDirectory
from mt.search.request import SearchRequest
from mt.training.loss import Objective
from mt.training.run import Outcome
from mt.transformer.transformer import Transformer
from tests.processes import Popen


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


AssertSame = Callable[..., None]
Call = Callable[..., Ended]
GoldenRun = Callable[..., RunDirectory]
IsWhole = Callable[[Checkpoint], bool]
MakeBatches = Callable[[Sequence[int]], list[Batch]]
MakeConfig = Callable[..., Config]
MakeObjective = Callable[..., Objective]
MakeRequest = Callable[..., SearchRequest]
MakeModel = Callable[..., Transformer]
Refuse = Callable[..., str]
Save = Callable[..., Checkpoint]
Start = Callable[..., Popen]
TrainUntil = Callable[..., Outcome | None]
