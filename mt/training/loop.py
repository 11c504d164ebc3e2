"""When to step, validate, save and stop."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mt.config.config import Config
from mt.data.batches.batch import Batch
from mt.data.batches.stream import BatchStream
from mt.errors import TrainingError
from mt.training.loss import Objective
from mt.training.precision import Precision
from mt.training.progress import Progress
from mt.training.schedule import learning_rate
from mt.training.state import TrainingState
from mt.training.step import StepResult, train_step
from mt.training.validation import ValidationResult

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Callbacks:
    """What the loop asks for without knowing how it is done."""

    validate: Callable[[], ValidationResult | None]
    """None where it was given up because the run has been asked to stop."""
    show: Callable[[ValidationResult], None]
    save: Callable[[dict[str, float], bool], None]
    """Given the figures of the validation at this step, if any, and whether it is the best so far."""
    interrupted: Callable[[], bool]
    keep_bad: Callable[[Sequence[Batch], StepResult], None] = lambda micro_batches, result: None
    """Given what the step was made of whose loss or gradient was no number."""


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
    saved_step = state.step
    while True:
        # The checkpoint of a validation that was given up lacks its outcome.
        must_save = state.owes_validation
        if not state.owes_validation:
            if (finished := state.reached_limit(config.training, config.validation)) is not None:
                return finished
            if callbacks.interrupted():
                if saved_step < state.step:
                    callbacks.save({}, False)
                return None
            _take_step(objective, stream, optimizer, precision, config, state, callbacks, progress)
            is_last = state.reached_limit(config.training, config.validation) is not None
            state.owes_validation = is_last or state.step % config.validation.every_steps == 0
        figures: dict[str, float] = {}
        is_best = False
        if state.owes_validation:
            started = time.perf_counter()
            validation = callbacks.validate()
            state.seconds += time.perf_counter() - started
            if validation is None:
                callbacks.save({}, False)
                return None
            state.owes_validation = False
            figures = validation.values()
            is_best = state.record_validation(figures[config.validation.metric], config.validation.metric)
            callbacks.show(validation)
        is_last = state.reached_limit(config.training, config.validation) is not None
        is_due = state.step % config.checkpoint.every_steps == 0 or _ends_epochs(state, config)
        if must_save or is_last or is_best or is_due:
            callbacks.save(figures, is_best)
            saved_step = state.step


def _ends_epochs(state: TrainingState, config: Config) -> bool:
    """Whether the newest step is the last of an epoch after which `checkpoint.every_epochs` saves."""
    every = config.checkpoint.every_epochs
    return every is not None and state.batch == 0 and state.epoch % every == 0


def _take_step(
    objective: Objective,
    stream: BatchStream,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    config: Config,
    state: TrainingState,
    callbacks: Callbacks,
    progress: Progress,
) -> None:
    """One step from the state's position in the data, counted and shown."""
    started = time.perf_counter()
    objective.train()
    micro_batches, state.epoch, state.batch = stream.take(state.epoch, state.batch)
    rate = learning_rate(state.step + 1, config.schedule, d_model=config.model.d_model)
    result = train_step(
        objective,
        micro_batches,
        optimizer,
        precision,
        learning_rate=rate,
        smoothing=config.training.label_smoothing,
        clip_norm=config.training.clip_norm,
        positions_too_large=state.positions_too_large,
    )
    state.positions_too_large = result.positions_too_large
    state.record_step(
        result.loss,
        result.num_target_tokens,
        updated=result.updated,
        scale_too_large=result.scale_too_large,
    )
    if result.scale_too_large:
        LOG.info("step %d skipped: the scale of fp16 was too large for it and is lowered", state.step)
    elif not result.updated:
        LOG.warning(
            "step %d skipped: the gradient's norm is %s, the loss %s",
            state.step,
            result.gradient_norm,
            result.loss,
        )
        callbacks.keep_bad(micro_batches, result)
        _refuse_too_many_skipped(state, config.training.max_skipped_steps)
    progress.step(state, result, rate, log=state.step % config.training.log_every_steps == 0)
    state.seconds += time.perf_counter() - started


def _refuse_too_many_skipped(state: TrainingState, most: int) -> None:
    if state.num_skipped_in_a_row >= most:
        raise TrainingError(
            f"the gradient was no number in {state.num_skipped_in_a_row} steps in a row, the last at step "
            f"{state.step}. Try a lower schedule.learning_rate, more schedule.warmup_steps, or "
            "training.precision=float32, in a new --run or with --restart."
        )
