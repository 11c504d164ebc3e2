"""The training loop: when to step, validate, save and stop."""

import logging
import time

from mt import distributed, processes
from mt.config.config import Config
from mt.config.training import ScheduleConfig
from mt.data.batches.stream import BatchStream
from mt.errors import Interrupted
from mt.training.counters import Counters
from mt.training.schedule import has_ended
from mt.training.session import Session, diverged
from mt.training.step import LaunchedStep, StepResult
from mt.training.train_state import TrainState

LOG = logging.getLogger(__name__)


def train(train_state: TrainState, batches: BatchStream, session: Session) -> str | None:
    """Train until the config's limits are reached, or until the session is interrupted.

    Returns:
        Why the run is finished, in words, or None if it was interrupted; then it is saved and can be resumed.
    """
    config, counters = session.config, train_state.counters
    outcomes = _Outcomes(train_state, session)
    figures: dict[str, float] = {}
    was_reported = False
    while True:
        # The checkpoint that was saved when the validation was interrupted does not have its scores.
        must_save = counters.owes_validation
        if not counters.owes_validation:
            if (finished := counters.reached_limit(config.training, config.validation)) is not None:
                return finished
            if not was_reported and has_ended(counters.step, config.schedule):
                was_reported = True
                _report_end_of_schedule(config.schedule)
            started = time.perf_counter()
            try:
                session.interruption.check()
                if counters.batch == 0:
                    # Preparing an epoch may take longer than a step is allowed to.
                    distributed.barrier_after(lambda: batches.num_steps(counters.epoch))
                num_tokens = batches.step_target_tokens(counters.epoch, counters.batch)
                micro_batches, epoch, batch = batches.take(
                    counters.epoch, counters.batch, rank=processes.rank(), num_processes=processes.size()
                )
            except Interrupted:
                outcomes.report()
                session.interruption.agree(stop=True)
                session.save_new_steps(train_state, figures)
                return None
            figures = {}
            counters.epoch, counters.batch = epoch, batch
            is_point = (counters.step + 1) % config.training.log_every_steps == 0
            stop = session.interruption.signal is not None
            outcomes.add(train_state.launch(micro_batches, num_tokens, observe=is_point, stop=stop))
            is_pause = is_point or _must_validate(counters, config) or _must_save(counters, config)
            if is_pause or not train_state.skips_on_device:
                outcomes.report()
            counters.seconds += time.perf_counter() - started
            session.agree_on_time(counters)
            counters.owes_validation = _must_validate(counters, config)
            if counters.owes_validation:
                # The time limit may just have ended the run.
                outcomes.report()
        is_best = False
        if counters.owes_validation:
            started = time.perf_counter()
            validation = session.validate(train_state)
            counters.seconds += time.perf_counter() - started
            session.agree_on_time(counters)
            if validation is None:
                session.save(train_state, figures, is_best=False)
                return None
            counters.owes_validation = False
            figures = validation.values()
            is_best = counters.record_validation(figures[config.validation.metric], config.validation.metric)
            session.show(counters, validation)
        if must_save or is_best or _must_save(counters, config):
            session.save(train_state, figures, is_best=is_best)


def _report_end_of_schedule(schedule: ScheduleConfig) -> None:
    LOG.warning(
        "the cosine schedule has reached zero at schedule.total_steps (%s): the model learns nothing in "
        "further steps. To train longer, start a new run with a greater total.",
        f"{schedule.total_steps:,}",
    )


def _must_validate(counters: Counters, config: Config) -> bool:
    """Whether the newest step is the last, or one after which a validation is due."""
    is_last = counters.reached_limit(config.training, config.validation) is not None
    return is_last or counters.step % config.validation.every_steps == 0


def _must_save(counters: Counters, config: Config) -> bool:
    """Whether the newest step is the last, or one after which a checkpoint is due."""
    every_epochs = config.checkpoint.every_epochs
    ends_epoch = counters.batch == 0 and every_epochs is not None and counters.epoch % every_epochs == 0
    is_last = counters.reached_limit(config.training, config.validation) is not None
    return is_last or ends_epoch or counters.step % config.checkpoint.every_steps == 0


class _Outcomes:
    """The outcome of each step, reported to the session and to the user once its metrics have been read.

    On CUDA that is after the next step has been launched, so that the device has work while the host waits.
    """

    def __init__(self, train_state: TrainState, session: Session) -> None:
        self._train_state = train_state
        self._session = session
        self._unread: LaunchedStep | None = None

    def add(self, step: LaunchedStep) -> None:
        """Report the previous step, unless that was done already, and remember this one."""
        self.report()
        self._unread = step

    def report(self) -> None:
        """Wait for the newest step and report it, unless that was done already."""
        if self._unread is None:
            return
        step, self._unread = self._unread, None
        session, counters = self._session, self._train_state.counters
        result = self._train_state.finish(step)
        session.interruption.agree(stop=result.stop_requested)
        if not result.updated:
            _report_skipped(step.number, result)
            if not result.scale_too_large:
                session.keep_bad_batch(step.number, step.micro_batches, result)
                _check_few_skipped(step.number, counters, session.config.training.max_skipped_steps)
        session.report_step(counters, result, counters.next_point() if step.health else None)


def _report_skipped(number: int, result: StepResult) -> None:
    if result.scale_too_large:
        LOG.info("step %d skipped: the fp16 loss scale was too large and is lowered", number)
    else:
        LOG.warning(
            "step %d skipped: the gradient norm is %s, the loss is %s",
            number,
            result.gradient_norm,
            result.loss,
        )


def _check_few_skipped(number: int, counters: Counters, most: int) -> None:
    if counters.num_skipped_in_a_row >= most:
        raise diverged(
            f"the loss or the gradient was not finite in {counters.num_skipped_in_a_row} steps in a row, the "
            f"last at step {number}"
        )
