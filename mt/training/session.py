"""What the training loop needs in one process: validation, checkpoints, interruption and progress."""

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from mt import distributed, processes
from mt.checkpoint.record import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.training import LEAST_TIMED
from mt.config.write import config_to_yaml
from mt.data.batches.batch import Batch, collate
from mt.data.batches.sampler import ordered_batches
from mt.data.batches.stream import BatchStream, StepBatches
from mt.data.corpus import evenly_spaced
from mt.data.prepare import Prepared
from mt.data.text_form import TextForm
from mt.display import progress
from mt.errors import Interrupted, OverflowedLinesError, RunError
from mt.files import sync, write_atomically
from mt.inference.exported_folder import remove_stale
from mt.inference.loaded_model import ModelOfText, corpus_facts, facts_of, tokenizer_checksums
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.sides import Sides
from mt.training.budget import CONVERSION_PASSES, MOST_VERIFIED, VALIDATION_PASSES, Pace, length_within
from mt.training.interruption import Interruption
from mt.training.progress import Progress, Sample
from mt.training.resume import of_length
from mt.training.schedule import has_ended
from mt.training.step import StepResult
from mt.training.train_state import TrainState, learning_rates
from mt.training.validation import ValidationResult, deciding_metric, validate, validation_loss

LOG = logging.getLogger(__name__)
# A run that has chosen its length says so if it takes longer than its time by this share of it.
LATE = 0.05


def diverged(what: str) -> RunError:
    """The error that ends a run whose numbers are no longer finite; ``what`` describes them."""
    return RunError(
        f"{what}. Try a lower schedule.learning_rate, more schedule.warmup_steps, or "
        "training.precision=float32, in another run directory with --run PATH, or start over with "
        "--restart, which moves the old run aside.",
    )


@dataclass
class Session:
    """One process's part of a run, from its start or from a checkpoint to its end or an interruption."""

    config: Config
    run: RunDirectory
    prepared: Prepared
    stages: Sequence[BatchStream]
    """The batches of each stage, of a run without stages as one."""
    environment: dict[str, str | int]
    interruption: Interruption
    progress: Progress | None
    """None for all processes except the first."""
    newest: Checkpoint | None
    """The newest checkpoint of the run."""
    ignoring_interruption = suppress(Interrupted)

    def __post_init__(self) -> None:
        # Read once: if the files are lost while training, checkpoints can still be saved.
        self._tokenizer_checksums = tokenizer_checksums(self.run)
        of_corpus = corpus_facts(self.run) | {"target_ratio": self.prepared.train.target_ratio}
        self._facts = facts_of(self.config, of_corpus)
        self._store = CheckpointStore(self.run.checkpoints_dir)
        self._metrics: dict[int, dict[str, float]] = {}
        """Those of the newest validation, by its step."""
        self._best_step = -1
        self._timed_until = time.perf_counter()
        self._seconds_before, self._first_step = 0.0, 0
        """The time and the number of steps of the sessions before this one."""
        self._late_after, self._expected_step_seconds = math.inf, 0.0
        """When a run that has chosen its length is late, and the time of a step by which it chose."""

    @property
    def stopping(self) -> bool:
        """Whether the run must stop, as all processes know."""
        return self.interruption.is_due

    def catch_up(self, state: TrainState) -> None:
        """Do the validation whose interruption ended the session before."""
        self._seconds_before = state.counters.seconds
        self._first_step = state.counters.step
        if state.counters.owes_validation:
            self.validate(state)
            # The checkpoint that was saved then does not have its scores.
            self.save(state)

    def next_batches(self, state: TrainState) -> StepBatches:
        """Those of the next step; the epochs of a stage are counted from 0, and the last one has the best."""
        counters = state.counters
        number, start = self.config.training.stage_at(counters.step)
        if number and counters.step == start:
            counters.epoch = counters.batch = counters.num_validations_without_gain = 0
            if number == len(self.stages) - 1:
                counters.best_value = None
        return self.stages[number].take(state.position)

    def finished(self, state: TrainState) -> str | None:
        """Why the run is finished, in words; None while it is not."""
        return state.counters.reached_limit(self.config.training, self.config.validation)

    def react(self, result: StepResult | None) -> None:
        """Act upon the result of a step, which may be the one before the newest: stop, or refuse to go on."""
        if result is None:
            return
        self._show(result)
        self.interruption.all_processes_know |= result.stop_requested
        in_a_row = result.counters.num_skipped_in_a_row
        if not result.updated and in_a_row >= self.config.training.max_skipped_steps:
            raise diverged(
                f"the loss or the gradient was not finite in {in_a_row} steps in a row, the last at step "
                f"{result.counters.step}"
            )

    def _show(self, result: StepResult) -> None:
        number, total = result.counters.step, self.config.schedule.fixed_steps
        if number - 1 == total and has_ended(total, self.config.schedule):
            LOG.warning("the learning rate has reached zero at schedule.total_steps (%s)", f"{total:,}")
        if result.scale_too_large:
            LOG.info("step %d skipped: the fp16 loss scale was too large and is lowered", number)
        elif not result.updated:
            numbers = f"the gradient norm is {result.gradient_norm}, the loss is {result.loss}"
            LOG.warning("step %d skipped: %s", number, numbers)
        if self.progress is not None:
            self.progress.step(result)

    def count_time(self, state: TrainState) -> None:
        """Add the time since this was called before, without saving."""
        now, counters = time.perf_counter(), state.counters
        counters.seconds += now - self._timed_until
        self._timed_until = now
        if self.config.training.max_minutes is not None:
            # All processes must agree on the end.
            counters.seconds = distributed.broadcast(counters.seconds)

    def length_due(self, state: TrainState) -> bool:
        """Whether a run that has a time in place of a number of steps now chooses that number."""
        enough = max(self.config.schedule.warmup_steps, self._first_step + LEAST_TIMED)
        return self.config.length_is_open and state.counters.step >= enough

    def choose_length(self, state: TrainState) -> None:
        """Choose the number of steps, by the time of those so far; it is on disk before the next one."""
        pace, minutes = self._pace(state), self.config.training.max_minutes or 0.0
        began = self.interruption.began - self._seconds_before
        end = began + 60 * minutes - pace.start_seconds
        left = end - time.perf_counter()
        # Only the first process has timed its steps.
        num_steps = distributed.broadcast(length_within(left, self.config, pace, state.counters.step))
        self.config = of_length(self.config, num_steps)
        state.learning_rate = learning_rates(self.config)
        if self.progress is not None:
            write_atomically(self.run.config_file, config_to_yaml(self.config))
            self.progress.expect(num_steps)
            self._late_after, self._expected_step_seconds = end + LATE * 60 * minutes, pace.step_seconds
            steps = f"{num_steps:,} steps of {pace.step_seconds:.3g} seconds"
            LOG.info("in %g minutes, the run takes %s", minutes, steps)

    def validation_due(self, state: TrainState) -> bool:
        """Whether the newest step is the last, or one after which a validation is due."""
        counters, config = state.counters, self.config.validation
        by_steps = config.every_epochs is None and counters.step % config.every_steps == 0
        return by_steps or counters.ends_epoch(config.every_epochs) or self.finished(state) is not None

    def checkpoint_due(self, state: TrainState) -> bool:
        """Whether the newest step is the last or the best, or one after which a checkpoint is due."""
        counters, config = state.counters, self.config.checkpoint
        is_last_or_best = self.finished(state) is not None or counters.step == self._best_step
        is_at_interval = counters.step % config.every_steps == 0 or counters.ends_epoch(config.every_epochs)
        return is_last_or_best or is_at_interval

    def validate(self, state: TrainState) -> None:
        """Evaluate the model and show its scores; if this is interrupted, it is repeated on resuming."""
        self.react(state.last_result())
        started, counters = time.perf_counter(), state.counters
        counters.owes_validation = True
        result = self._validate(state)
        self.count_time(state)
        counters.owes_validation = False
        self._metrics = {counters.step: result.values()}
        metric, values = deciding_metric(self.config.validation), result.values()
        # Of a single set, the mean is its own.
        if counters.record_validation(values.get(metric, values[self.config.validation.metric]), metric):
            self._best_step = counters.step
        if self.progress is not None:
            rows = self.prepared.corpus.validation
            indices = evenly_spaced(len(rows), self.config.validation.num_samples).tolist()
            samples = []
            for index in indices:
                source, reference = rows[index]["src"], rows[index]["tgt"]
                samples.append(Sample(source, result.hypotheses[index], reference))
            self.progress.validation(counters, result, samples)
            self.progress.exclude(time.perf_counter() - started)

    def save(self, state: TrainState) -> None:
        """Save a checkpoint, with the metrics of the validation at this step, if there was one."""
        self.react(state.last_result())
        if processes.IS_FIRST:
            self._save(state)
        distributed.barrier()
        self._timed_until = time.perf_counter()

    def close(self, state: TrainState, finished: str | None) -> str | None:
        """Save the steps of a session that was interrupted; return ``finished``."""
        self.react(state.last_result())
        if self.progress is not None and time.perf_counter() > self._late_after:
            seconds = (
                f"{self.progress.step_seconds:.3g} seconds in place of {self._expected_step_seconds:.3g}"
            )
            LOG.warning("the run is longer than its time: a step took %s", seconds)
        if finished is None:
            self.interruption.all_processes_know = True
            if distributed.broadcast(state.counters.step != (self.newest.step if self.newest else 0)):
                self.save(state)
        return finished

    def _pace(self, state: TrainState) -> Pace:
        """How long each part of the run takes; a checkpoint is saved to know it."""
        self.react(state.last_result())
        step_seconds = 0.0 if self.progress is None else self.progress.step_seconds
        started = time.perf_counter()
        validation_loss(state.objective, self._validation_batches(), state.precision)
        validated = time.perf_counter()
        self.save(state)
        saved = time.perf_counter()
        num_own = len(self.prepared.corpus.validation)
        num_all = sum(len(of_set.pairs) for of_set in self.prepared.validation_sets.values())
        sentence_seconds = (validated - started) / num_own
        epoch, batches = state.counters.epoch, self.stages[0]
        return Pace(
            batches.num_steps(epoch),
            batches.num_target_tokens(epoch),
            step_seconds,
            validation_seconds=VALIDATION_PASSES * num_all * sentence_seconds,
            checkpoint_seconds=saved - validated,
            start_seconds=CONVERSION_PASSES * min(MOST_VERIFIED, num_own) * sentence_seconds,
        )

    def _validate(self, state: TrainState) -> ValidationResult:
        model, prepared = state.objective.model, self.prepared
        translator = ModelTranslator(ModelOfText(self.config, model, *prepared.tokenizers, self._facts))

        def translate(sources: Sequence[str], direction: Sides[str]) -> list[str]:
            with progress(len(sources), unit="sentences", description="validating") as advance:
                return translator.into(direction.tgt, direction.src).translate(
                    sources, join_lines=True, advance=advance, before_each_step=self.interruption.check_share
                )

        try:
            with state.evaluation_weights():
                return validate(
                    state.objective,
                    self._validation_batches(),
                    state.precision,
                    translate=translate,
                    sets=prepared.validation_sets,
                    form=TextForm.of(self.config.cleaning),
                )
        except OverflowedLinesError as error:
            where = f"in the validation at step {state.counters.step:,}"
            raise diverged(f"the model's logits are NaN or infinite {where}") from error

    def _save(self, state: TrainState) -> None:
        started = time.perf_counter()
        if not all(bool(weight.isfinite().all()) for weight in state.objective.model.parameters()):
            raise diverged(f"model weights are NaN or infinite at step {state.counters.step:,}")
        # A resumed run does not write the points so far again.
        sync(self.run.metrics_file)
        training_state, step = state.save(), state.counters.step
        checkpoint = Checkpoint(
            step=step,
            best=step == self._best_step,
            metrics=self._metrics.get(step, {}),
            environment=self.environment,
            tokenizers=self._tokenizer_checksums,
            computation=self.config.computation(),
        )
        with state.evaluation_weights():
            weights = state.objective.model.weights()
            keep = self.config.checkpoint.keep
            self.newest = self._store.save(checkpoint, weights, training_state, keep=keep)
        remove_stale(self.run)
        seconds = time.perf_counter() - started
        if self.progress is not None:
            self.progress.exclude(seconds)
        LOG.info("saved %s in %.2f seconds", self.newest.name, seconds)

    def _validation_batches(self) -> Iterator[Batch]:
        pairs = self.prepared.validation
        batches = ordered_batches(
            pairs.src.lengths, pairs.tgt.lengths, batch_tokens=self.config.training.batch_tokens
        )
        for indices in islice(batches, processes.RANK, None, processes.SIZE):
            self.interruption.check_share()
            yield collate(*pairs.select(indices))
