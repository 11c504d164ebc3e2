"""How many steps fit into a time, which also has to hold everything else that a run does."""

import math
import sys
from bisect import bisect_right
from dataclasses import dataclass

from mt.config.config import Config

# A validation, which translates, took as long as this many forward passes over its sentences, and so did
# converting the best checkpoint at the end, in which up to so many sentences are translated by two engines.
VALIDATION_PASSES, CONVERSION_PASSES, MOST_VERIFIED = 2.7, 3.5, 1000

# The first steps are slow, because the libraries prepare for new batch sizes.
UNTIMED_STEPS = 3


@dataclass(frozen=True)
class Pace:
    """How fast a model is on this machine, and how long each part of its run takes."""

    steps_per_epoch: float
    target_tokens_per_epoch: float
    step_seconds: float
    """The time of an average step, including its share of the work that is done once an epoch."""
    validation_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    start_seconds: float = 0.0
    """The time from the start of the program to the first step, and from the last step to the end."""
    num_parameters: int = 0
    token_seconds: tuple[float, float] = (0.0, 0.0)
    """The time of a training step and of a forward pass for each target token."""

    @property
    def pause_seconds(self) -> float:
        """The time of a validation with a checkpoint."""
        return self.validation_seconds + self.checkpoint_seconds


def length_within(seconds: float, config: Config, pace: Pace, step: int) -> int:
    """The number of steps of a run that is at ``step`` and has ``seconds`` left; at least one more."""
    validation, checkpoint = config.validation, config.checkpoint
    pauses = [
        (pace.validation_seconds, validation.every_steps, validation.every_epochs),
        (pace.checkpoint_seconds, checkpoint.every_steps, checkpoint.every_epochs),
    ]

    def needed(num_steps: int) -> float:
        total = pace.step_seconds * (num_steps - step)
        for cost, steps, epochs in pauses:
            every = epochs * pace.steps_per_epoch if epochs else steps
            total += cost * (math.ceil(num_steps / every) - step // every)
        return total

    return bisect_right(range(sys.maxsize), seconds, lo=step + 2, key=needed) - 1
