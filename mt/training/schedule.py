"""The learning rate as a pure function of the step (Vaswani et al. 2017, section 5.3)."""

import math

from mt.config.training import ScheduleConfig


def noam_learning_rate(step: int, *, d_model: int, warmup_steps: int, factor: float = 1.0) -> float:
    """The paper's schedule (equation 3): a linear rise, then a fall with the root of the step."""
    return float(factor * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def learning_rate(step: int, config: ScheduleConfig, *, d_model: int) -> float:
    """The learning rate of optimizer step ``step``, counted from 1, for any kind of schedule."""
    if step < 1:
        raise ValueError(f"steps are counted from 1, so there is no step {step}")
    warmup_steps, peak = config.warmup_steps, config.learning_rate
    if config.kind == "noam":
        return noam_learning_rate(step, d_model=d_model, warmup_steps=warmup_steps, factor=config.factor)
    if step < warmup_steps:
        return peak * step / warmup_steps
    match config.kind:
        case "inverse_sqrt":
            return peak * math.sqrt(max(warmup_steps, 1) / step)
        case "cosine" if config.total_steps != "auto":  # Until the run has chosen a number, the peak.
            # The config requires a total greater than the warm-up; after it the rate stays at zero.
            done = (step - warmup_steps) / (config.fixed_steps - warmup_steps)
            return peak * (0.5 * (1 + math.cos(math.pi * min(done, 1.0))))
        case _:
            return peak


def has_ended(step: int, config: ScheduleConfig) -> bool:
    """Whether the learning rate of all steps after ``step`` is zero."""
    return config.kind == "cosine" and 0 < config.fixed_steps <= step
