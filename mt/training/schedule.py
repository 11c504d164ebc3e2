"""The learning rate as a pure function of the step (Vaswani et al. 2017, section 5.3)."""

import math

from mt.config.training import ScheduleConfig


def noam_learning_rate(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """The paper's schedule (equation 3): a linear rise, then a fall with the inverse square root of the step.

    Args:
        step: Optimizer steps, counted from 1 (not micro-batches).
        d_model: Width of the model; a wider model gets a lower learning rate.
        warmup_steps: Steps of linear rise.
        factor: Multiplies the whole schedule.
    """
    if step < 1:
        raise ValueError(f"steps are counted from 1, so there is no step {step}")
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def learning_rate(step: int, config: ScheduleConfig, *, d_model: int) -> float:
    """The learning rate of optimizer step ``step``, counted from 1, for any kind of schedule."""
    if config.kind == "noam":
        return noam_learning_rate(
            step, d_model=d_model, warmup_steps=config.warmup_steps, factor=config.factor
        )
    if step < 1:
        raise ValueError(f"steps are counted from 1, so there is no step {step}")
    if step < config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    return config.learning_rate * _after_warmup(step, config)


def has_ended(step: int, config: ScheduleConfig) -> bool:
    """Whether the learning rate of all steps after ``step`` is zero."""
    return config.kind == "cosine" and config.total_steps is not None and step >= config.total_steps


def _after_warmup(step: int, config: ScheduleConfig) -> float:
    """The factor on the peak learning rate at ``step``, which is after the warm-up."""
    match config.kind:
        case "inverse_sqrt":
            return math.sqrt(max(config.warmup_steps, 1) / step)
        case "cosine":
            # The config requires a total greater than the warm-up; after it the rate stays at zero.
            assert config.total_steps is not None
            done = (step - config.warmup_steps) / (config.total_steps - config.warmup_steps)
            return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        case _:
            return 1.0
