"""What a run remembers besides weights and optimizer: where it is, and how well it did."""

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from mt.config.training import TrainingConfig, ValidationConfig

# Points of the training curve that its running average is over, more or less: the older, the less they count.
POINTS_AVERAGED = 10

# More than any run can reach, and few enough to be computed and printed.
_MOST = 10**14


def _is_score(value: float) -> float:
    """A score may be NaN or infinite, as a loss may be."""
    if value < -1 or _MOST < value < math.inf:
        raise ValueError("must be a score")
    return value


Count = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
# What is never negative may be so by a rounding error.
Amount = Annotated[float, Field(strict=True, ge=-1, le=_MOST, allow_inf_nan=False)]
Score = Annotated[float, Field(strict=True), AfterValidator(_is_score)]
Flag = Annotated[bool, Field(strict=True)]


@dataclass
class TrainingState:
    """Plain values, for the JSON of a checkpoint; their types bound what is believed of one."""

    step: Count = 0
    """Optimizer steps taken."""
    epoch: Count = 0
    """Passes over the training split that are complete."""
    batch: Count = 0
    """Batches of the present epoch that are used up."""
    num_target_tokens: Count = 0
    """Real target tokens trained on."""
    seconds: Amount = 0.0
    """Time spent training and validating, over all sittings."""
    best_value: Score | None = None
    """Best value so far of the metric that was chosen."""
    num_validations_without_gain: Count = 0
    num_skipped_steps: Count = 0
    """Steps whose gradient was no number, so far."""
    num_skipped_in_a_row: Count = 0
    logged_loss: Amount = 0.0
    """Summed loss of the steps since the last point of the training curves, in nats."""
    logged_tokens: Count = 0
    """Target tokens of those steps. Kept here so that a resumed run draws the same curves."""
    average_loss: Amount = 0.0
    """Running average of the points of the training curve, against which a spike stands out."""
    num_points: Count = 0
    """Points of the training curve so far."""
    num_scaler_skips: Count = 0
    """Steps skipped only because the scale of fp16 was too large for them; no sign of anything wrong."""
    owes_validation: Flag = False
    """Whether the validation at this step was given up for a signal, and is still to be done."""
    positions_too_large: Count | None = None
    """Positions of the smallest batch that did not fit into memory; what is split draws other dropout."""

    def to_dict(self) -> dict[str, Any]:
        """Names and values, for a checkpoint."""
        return asdict(self)

    def record_step(
        self, loss: float, num_target_tokens: int, *, updated: bool, scale_too_large: bool = False
    ) -> None:
        """Count a step with this loss per token; one not ``updated`` counts as skipped, its loss left out."""
        self.step += 1
        self.num_target_tokens += num_target_tokens
        if updated:
            self.num_skipped_in_a_row = 0
            self.logged_loss += loss * num_target_tokens
            self.logged_tokens += num_target_tokens
        elif scale_too_large:
            self.num_scaler_skips += 1
        else:
            self.num_skipped_steps += 1
            self.num_skipped_in_a_row += 1

    def end_window(self) -> tuple[float, float]:
        """Begin a new point of the training curve.

        Returns:
            The loss per token of the one that ends, and by how much it is above the running average of
            those before it; 0 as long as these are too few to tell.
        """
        loss = self.logged_loss / self.logged_tokens
        self.logged_loss, self.logged_tokens = 0.0, 0
        above = loss - self.average_loss
        self.num_points += 1
        self.average_loss += above / min(self.num_points, POINTS_AVERAGED)
        return loss, above if self.num_points > POINTS_AVERAGED else 0.0

    def record_validation(self, value: float, metric: str) -> bool:
        """Remember the chosen metric's newest value; return whether it is the best so far."""
        better = (
            self.best_value is None
            or (math.isnan(self.best_value) and not math.isnan(value))
            or (value < self.best_value if metric == "loss" else value > self.best_value)
        )
        if better:
            self.best_value = value
        self.num_validations_without_gain = 0 if better else self.num_validations_without_gain + 1
        return better

    def reached_limit(self, training: TrainingConfig, validation: ValidationConfig) -> str | None:
        """Why the run is finished, in words; None while it is not."""
        minutes = self.seconds / 60
        if training.max_steps is not None and self.step >= training.max_steps:
            return f"training.max_steps ({training.max_steps:,}) reached"
        if training.max_epochs is not None and self.epoch >= training.max_epochs:
            return f"training.max_epochs ({training.max_epochs:,}) reached"
        if training.max_target_tokens is not None and self.num_target_tokens >= training.max_target_tokens:
            return f"training.max_target_tokens ({training.max_target_tokens:,}) reached"
        if training.max_minutes is not None and minutes >= training.max_minutes:
            return f"training.max_minutes ({training.max_minutes:g}) reached"
        if validation.patience is not None and self.num_validations_without_gain >= validation.patience:
            return f"no gain in {validation.patience} validations (validation.patience)"
        return None
