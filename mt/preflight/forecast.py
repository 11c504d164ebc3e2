"""How long the run will be, by its limits: steps, epochs, validations, time and disk space."""

import math
from dataclasses import dataclass, replace
from typing import Self

from mt.config.config import Config


@dataclass(frozen=True)
class Pace:
    """What was measured or counted ahead of the run."""

    steps_per_epoch: float
    target_tokens_per_epoch: float
    tokens_per_second: float
    """Target tokens, padding not counted."""
    epoch_seconds: float
    """Of what is done as an epoch begins."""
    validation_seconds: float
    """Of one validation."""

    @property
    def seconds_per_step(self) -> float:
        """Of an average step, with its share of what is done once an epoch."""
        on_batches = self.target_tokens_per_epoch / self.tokens_per_second
        return (on_batches + self.epoch_seconds) / self.steps_per_epoch

    def at(self, tokens_per_second: float) -> Self:
        """This pace where everything that computes is as much faster or slower as training is."""
        return replace(
            self,
            tokens_per_second=tokens_per_second,
            validation_seconds=self.validation_seconds * self.tokens_per_second / tokens_per_second,
        )


@dataclass(frozen=True)
class Forecast:
    """The run as its limits and its pace will make it."""

    num_steps: int
    ended_by: str
    """The option that ends it."""
    is_certain: bool
    """False where patience alone ends it: then this is the earliest end."""
    num_epochs: float
    num_validations: int
    num_checkpoints: int
    """Those saved for their step; each new best is saved besides."""
    training_seconds: float
    validating_seconds: float

    @property
    def slack(self) -> float:
        """A factor on the steps within which the forecast may be wrong."""
        return {"training.max_steps": 1.0, "training.max_minutes": 2.0}.get(self.ended_by, 1.05)

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return self.training_seconds + self.validating_seconds


def forecast(config: Config, pace: Pace) -> Forecast:
    """Work out which limit is reached first, and what happens until then."""
    training, validation = config.training, config.validation
    limits: list[tuple[float, str]] = []
    if training.max_steps is not None:
        limits.append((training.max_steps, "training.max_steps"))
    if training.max_epochs is not None:
        limits.append((training.max_epochs * pace.steps_per_epoch, "training.max_epochs"))
    if training.max_target_tokens is not None:
        epochs = training.max_target_tokens / pace.target_tokens_per_epoch
        limits.append((epochs * pace.steps_per_epoch, "training.max_target_tokens"))
    if training.max_minutes is not None:
        with_share_of_validation = pace.seconds_per_step + pace.validation_seconds / validation.every_steps
        limits.append((60 * training.max_minutes / with_share_of_validation, "training.max_minutes"))
    is_certain = bool(limits)
    if not limits:
        # The first validation is always a gain.
        assert validation.patience is not None
        limits.append(((1 + validation.patience) * validation.every_steps, "validation.patience"))
    steps, ended_by = min(limits)
    num_steps = max(1, math.ceil(steps))
    num_epochs = num_steps / pace.steps_per_epoch
    num_validations = _times(num_steps, validation.every_steps)
    num_checkpoints = _times(num_steps, config.checkpoint.every_steps)
    if config.checkpoint.every_epochs is not None:
        num_checkpoints += int(num_epochs / config.checkpoint.every_epochs)
    return Forecast(
        num_steps,
        ended_by,
        is_certain,
        num_epochs,
        num_validations,
        num_checkpoints,
        num_steps * pace.seconds_per_step,
        num_validations * pace.validation_seconds,
    )


def disk_space(config: Config, num_parameters: int) -> tuple[int, int]:
    """Bytes of one checkpoint, and of all at most: those kept, the best, and the one being saved.

    It holds the weights, Adam's two averages, and where there is a moving average also that, in float32; the
    rest is small.
    """
    one = (12 if config.training.ema_decay is None else 16) * num_parameters
    return one, (config.checkpoint.keep + 2) * one


def _times(num_steps: int, every: int) -> int:
    """How often something happens that is done each so many steps, and at the last."""
    return -(-num_steps // every)
