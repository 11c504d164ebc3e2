"""The plain values of a checkpoint's training state: what they are, and that nothing else is believed."""

from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mt.checkpoint.record import DamagedError
from mt.checkpoint.training_state import SavedTraining
from mt.training.state import Count, TrainingState


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OptimizerValues(_Section):
    """Of Adam."""

    num_updates: Count
    """Updates of the parameters so far; before the first there are no moments."""


class ScalerValues(_Section):
    """Of the scale of fp16."""

    scale: Annotated[float, Field(strict=True, gt=0, le=torch.finfo(torch.float32).max)]
    growth_tracker: Count
    """Steps since the scale has last changed."""


class AverageValues(_Section):
    """Of the moving average of the weights."""

    num_updates: Count


class SavedValues(_Section):
    """All of them."""

    state: TrainingState
    optimizer: OptimizerValues
    scaler: ScalerValues | None
    """None but for fp16."""
    average: AverageValues | None
    """None where there is no moving average."""


def read_values(saved: SavedTraining, step: int) -> SavedValues:
    """The values of a training state, of a checkpoint of this step.

    Raises:
        DamagedError: If one is missing, of another type, or none that training comes to.
    """
    state = saved.values.get("state")
    if not isinstance(state, dict):
        raise DamagedError("its training state has no counters")
    defaults = TrainingState().to_dict()
    if saved.is_format_1:
        state = defaults | state
    if state.keys() != defaults.keys():
        raise DamagedError("its training state has other counters than mt writes")
    try:
        values = SavedValues.model_validate({**saved.values, "state": state})
    except ValidationError as error:
        raise DamagedError(f"its training state is not one that mt wrote ({_complaint(error)})") from error
    updates = [values.optimizer.num_updates, values.average.num_updates if values.average else 0]
    if values.state.step != step or max(updates) > step:
        raise DamagedError(f"its training state is not that of step {step}")
    return values


def _complaint(error: ValidationError) -> str:
    """The first thing that is wrong, without what is there instead, which may be of any length."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    if first["type"] == "extra_forbidden":
        return "a value that mt does not write"
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
