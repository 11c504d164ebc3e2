"""The plain numbers of a run: how far it has got and how well it did, as in a checkpoint's JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mt.checkpoint.record import DamagedError
from mt.config.explain import first_complaint
from mt.config.training import TrainingConfig, ValidationConfig

# The approximate number of points in the running average of the training curve; older points weigh less.
POINTS_AVERAGED = 10

# More than any run can reach, and small enough to compute with and print.
Count = Annotated[int, Field(ge=0, le=10**14)]
# Never negative but for a rounding error; in a diverging run it may be of any size.
Amount = Annotated[float, Field(ge=-1, allow_inf_nan=False)]


class CurvePoint(NamedTuple):
    """A point of the training curve."""

    loss: float
    """Mean loss per target token since the previous point."""
    above_average: float
    """Difference to the average of earlier points; 0 while there are too few of them."""


@dataclass
class Counters:
    """Position, totals and best score of a run. The types bound which values are accepted from a file."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    step: Count = 0
    """Optimizer steps taken."""
    epoch: Count = 0
    """Complete passes over the training split."""
    batch: Count = 0
    """Batches of the current epoch that have been used."""
    num_target_tokens: Count = 0
    """Real target tokens trained on."""
    seconds: Amount = 0.0
    """Time spent on training and validation, over all sessions."""
    best_value: float | None = None
    """Best value so far of ``validation.metric``."""
    num_validations_without_gain: Count = 0
    num_skipped_steps: Count = 0
    num_skipped_in_a_row: Count = 0
    logged_loss: Amount = 0.0
    """Summed loss, in nats, and target tokens of the steps since the last point of the training curve."""
    logged_tokens: Count = 0
    average_loss: Amount = 0.0
    """Running average of the points of the training curve, to recognise a spike."""
    num_points: Count = 0
    num_scaler_skips: Count = 0
    """Steps skipped only because the loss scale of fp16 was too large, which is normal."""
    owes_validation: bool = False
    """Whether the validation at this step was interrupted and has yet to be done."""
    positions_too_large: Count | None = None
    """Positions in the smallest batch that ran out of memory; saved because halves draw different dropout."""

    def record_outcome(
        self, loss: float, num_target_tokens: int, *, updated: bool, scale_too_large: bool = False
    ) -> None:
        """Record a step's loss per token. A step without an update counts as skipped, without its loss."""
        if updated:
            self.num_skipped_in_a_row = 0
            self.logged_loss += loss * num_target_tokens
            self.logged_tokens += num_target_tokens
        elif scale_too_large:
            self.num_scaler_skips += 1
        else:
            self.num_skipped_steps += 1
            self.num_skipped_in_a_row += 1

    def ends_epoch(self, every: int | None) -> bool:
        """Whether the newest step was the last of an epoch whose number is a multiple of ``every``."""
        return every is not None and self.batch == 0 and self.epoch % every == 0

    def next_point(self) -> CurvePoint | None:
        """Finish a point of the training curve and start the next one; None if all its steps were skipped."""
        if not self.logged_tokens:
            return None
        loss = self.logged_loss / self.logged_tokens
        self.logged_loss = 0.0
        self.logged_tokens = 0
        above = loss - self.average_loss
        self.num_points += 1
        self.average_loss += above / min(self.num_points, POINTS_AVERAGED)
        return CurvePoint(loss, above if self.num_points > POINTS_AVERAGED else 0.0)

    def record_validation(self, value: float, metric: str) -> bool:
        """Record a new value of the metric; return whether it is the best so far."""
        # Of checkpoints with a score of 0, the newest counts as the best, but that is no gain.
        is_tie_at_0 = metric != "loss" and value == self.best_value == 0
        better = (
            self.best_value is None
            or (math.isnan(self.best_value) and not math.isnan(value))
            or (value < self.best_value if metric == "loss" else value > self.best_value)
        )
        if better:
            self.best_value = value
        self.num_validations_without_gain = 0 if better else self.num_validations_without_gain + 1
        return better or is_tie_at_0

    def reached_limit(self, training: TrainingConfig, validation: ValidationConfig) -> str | None:
        """Why the run is finished, in words that begin or end with an option; None while it is not."""
        reached = {"max_steps": self.step, "max_epochs": self.epoch, "max_minutes": self.seconds / 60}
        for name, limit in training.limits.items():
            if reached[name] >= limit:
                number = f"{limit:,}".removesuffix(".0")
                return f"training.{name} ({number}) reached"
        if validation.patience is not None and self.num_validations_without_gain >= validation.patience:
            return f"no improvement in {validation.patience} validations (validation.patience)"
        return None


class Updates(BaseModel, strict=True, extra="forbid", frozen=True):
    """How often an optimizer, or the moving average, was updated."""

    num_updates: Count


class ScalerValues(BaseModel, strict=True, extra="forbid", frozen=True):
    """The fp16 loss scale, and the steps since its last change."""

    scale: Annotated[float, Field(gt=0, lt=2.0**128)]
    growth_tracker: Count


class SavedValues(BaseModel, strict=True, extra="forbid", frozen=True):
    """All plain values of a checkpoint's training state."""

    counters: Counters = Field(alias="state")
    optimizer: Updates
    scaler: ScalerValues | None
    average: Updates | None


def read_values(saved: Mapping[str, Any], step: int) -> SavedValues:
    """The plain values in the training state of a checkpoint of this step."""
    try:
        values = SavedValues.model_validate_json(json.dumps(saved))
    except ValidationError as error:
        raise DamagedError(f"its training state was not written by mt ({first_complaint(error)})") from error
    updates = [part.num_updates for part in (values.optimizer, values.average) if part]
    if values.counters.step != step or max(updates) > step:
        raise DamagedError(f"its training state does not belong to step {step}")
    return values
