"""When to step, validate, save and stop."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from mt.config.config import Config
from mt.errors import TrainingError
from mt.training.batch_stream import BatchStream
from mt.training.objective import Objective
from mt.training.precision import Precision
from mt.training.progress import Progress
from mt.training.schedule import learning_rate
from mt.training.state import TrainingState
from mt.training.step import train_step
from mt.training.validation import ValidationResult

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Callbacks:
    """What the loop asks for without knowing how it is done."""

    validate: Callable[[], ValidationResult]
    show: Callable[[ValidationResult], None]
    save: Callable[[dict[str, float], bool], None]
    """Given the figures of the validation at this step, if any, and whether it is the best so far."""
    interrupted: Callable[[], bool]


def train(
    objective: Objective,
    stream: BatchStream,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    *,
    config: Config,
    state: TrainingState,
    callbacks: Callbacks,
    progress: Progress,
) -> str | None:
    """Train from the state on until a limit of the config is reached, or until interrupted.

    Returns:
        Why the run is finished, in words, or None where it was interrupted: then it is saved and can go on.

    Raises:
        TrainingError: If too many steps in a row had a gradient that is no number.
    """
    device = next(objective.parameters()).device
    saved_step = state.step
    objective.train()
    while (finished := state.reached_limit(config.training, config.validation)) is None:
        started = time.perf_counter()
        if callbacks.interrupted():
            if saved_step < state.step:
                callbacks.save({}, False)
            return None
        micro_batches, state.epoch, state.batch = stream.take(state.epoch, state.batch)
        rate = learning_rate(state.step + 1, config.schedule, d_model=config.model.d_model)
        result = train_step(
            objective,
            [batch.to(device) for batch in micro_batches],
            optimizer,
            precision,
            learning_rate=rate,
            smoothing=config.training.label_smoothing,
            clip_norm=config.training.clip_norm,
        )
        state.record_step(result.loss, result.num_target_tokens, updated=result.updated)
        if not result.updated:
            _report_skipped(state, result.gradient_norm, config.training.max_skipped_steps)
        progress.step(state, result, rate, log=state.step % config.training.log_every_steps == 0)
        state.seconds += time.perf_counter() - started

        is_last = state.reached_limit(config.training, config.validation) is not None
        figures: dict[str, float] = {}
        is_best = False
        if is_last or state.step % config.validation.every_steps == 0:
            started = time.perf_counter()
            validation = callbacks.validate()
            state.seconds += time.perf_counter() - started
            figures = validation.values()
            is_best = state.record_validation(figures[config.validation.metric], config.validation.metric)
            callbacks.show(validation)
            is_last = state.reached_limit(config.training, config.validation) is not None
        if is_last or is_best or state.step % config.checkpoint.every_steps == 0:
            callbacks.save(figures, is_best)
            saved_step = state.step
    return finished


def _report_skipped(state: TrainingState, gradient_norm: float, most: int) -> None:
    LOG.warning("step %d skipped: the gradient's norm is %s", state.step, gradient_norm)
    if state.num_skipped_in_a_row >= most:
        raise TrainingError(
            f"the gradient was no number in {state.num_skipped_in_a_row} steps in a row, the last at step "
            f"{state.step}. Try a lower schedule.learning_rate, more schedule.warmup_steps, or "
            "training.precision=float32."
        )
