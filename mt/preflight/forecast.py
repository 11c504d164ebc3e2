"""How long a run will be, given its limits and its pace."""

import math
from dataclasses import dataclass

from mt.config.config import Config


@dataclass(frozen=True)
class Pace:
    """What was measured or counted before the run."""

    steps_per_epoch: float
    target_tokens_per_epoch: float
    step_seconds: float
    """The time of an average step, including its share of the work that is done once an epoch."""
    validation_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    start_seconds: float = 0.0
    """The time from the start of the program to the first step, and from the last step to the end."""

    @property
    def tokens_per_step(self) -> float:
        """Target tokens of an average step, without padding."""
        return self.target_tokens_per_epoch / self.steps_per_epoch

    @property
    def tokens_per_second(self) -> float:
        """The speed of training in target tokens, without padding."""
        return self.tokens_per_step / self.step_seconds


@dataclass(frozen=True)
class Forecast:
    """The length of a run, computed from its limits and its pace."""

    num_steps: int
    ended_by: str
    """The config option that ends it."""
    is_certain: bool
    """False if only patience ends it; then this is the earliest end."""
    num_epochs: float
    num_validations: int
    num_checkpoints: int
    """The checkpoints saved at intervals; each new best is saved as well."""
    seconds: float
    """The time of the whole run."""
    validating_seconds: float

    @property
    def slack(self) -> float:
        """The factor by which the number of steps may be wrong."""
        factors = {"training.max_steps": 1.0, "validation.patience": 1.0, "training.max_minutes": 2.0}
        return factors.get(self.ended_by, 1.05)


def forecast(config: Config, pace: Pace) -> Forecast:
    """Work out which limit is reached first, and what happens until then."""
    training, validation = config.training, config.validation
    seconds_per_step = pace.step_seconds + pace.validation_seconds / validation.every_steps
    limits = {
        "training.max_steps": (training.max_steps, 1.0),
        "training.max_epochs": (training.max_epochs, pace.steps_per_epoch),
        "training.max_target_tokens": (training.max_target_tokens, 1 / pace.tokens_per_step),
        "training.max_minutes": (training.max_minutes, 60 / seconds_per_step),
    }
    steps = {name: limit * factor for name, (limit, factor) in limits.items() if limit is not None}
    is_certain = bool(steps)
    if not steps:
        # The first validation always counts as an improvement.
        assert validation.patience is not None
        steps = {"validation.patience": (1 + validation.patience) * validation.every_steps}
    ended_by = min(steps, key=lambda name: steps[name])
    num_steps = max(1, math.ceil(steps[ended_by]))
    num_epochs = num_steps / pace.steps_per_epoch
    # At intervals, and at the last step.
    num_validations = math.ceil(num_steps / validation.every_steps)
    num_checkpoints = math.ceil(num_steps / config.checkpoint.every_steps)
    if config.checkpoint.every_epochs is not None:
        num_checkpoints += int(num_epochs / config.checkpoint.every_epochs)
    validating_seconds = num_validations * pace.validation_seconds
    saving_seconds = num_checkpoints * pace.checkpoint_seconds
    return Forecast(
        num_steps,
        ended_by,
        is_certain,
        num_epochs,
        num_validations,
        num_checkpoints,
        pace.start_seconds + num_steps * pace.step_seconds + validating_seconds + saving_seconds,
        validating_seconds,
    )
