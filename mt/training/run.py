"""`mt train`: everything meets here, once, in the order in which it is needed."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from mt.checkpoint.record import Checkpoint, DamagedError
from mt.checkpoint.store import CheckpointStore
from mt.checkpoint.training_state import SavedTraining
from mt.config.config import Config
from mt.data.batches.batch import Batch, collate
from mt.data.batches.sampler import ordered_batches
from mt.data.batches.stream import BatchStream, training_batches
from mt.data.corpus import Corpus, load_corpus
from mt.data.prepare import Prepared, make_tokenizers, prepare, refuse_changed_corpus
from mt.device import choose_device, keep_freed_memory
from mt.display import progress_bar
from mt.errors import CheckpointError
from mt.inference.loaded_model import (
    build_model,
    refuse_other_computation,
    refuse_other_tokenizers,
    tokenizer_checksums,
)
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory, as_run
from mt.seeding import seed_everything
from mt.training.bad_batches import keep_bad_batch
from mt.training.branch import branch_off, find_origin
from mt.training.interruption import Interrupted, Interruption
from mt.training.loop import Callbacks, train
from mt.training.precision import Precision
from mt.training.progress import Progress
from mt.training.resume import (
    describe_environment,
    explain_out_of_memory,
    refuse_changed_config,
    refuse_config_of_others,
    refuse_lost_checkpoints,
    write_config,
)
from mt.training.run_log import log_file, report_end, report_model, report_resuming, report_stop
from mt.training.saved_values import SavedValues, read_values
from mt.training.state import TrainingState
from mt.training.step import StepResult
from mt.training.train_state import Trainee, new_trainee
from mt.training.validation import ValidationResult, validate

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a sitting of training ended."""

    finished: str | None
    """Why the run is finished, in words; None where it was interrupted and can go on."""
    state: TrainingState
    exit_code: int = 0
    was_finished: bool = False
    """Whether it was so before this sitting, which then did nothing."""


@dataclass
class Sitting:
    """One process's part of a run; its methods are what the loop asks for."""

    config: Config
    run: RunDirectory
    store: CheckpointStore
    prepared: Prepared
    trainee: Trainee
    environment: dict[str, str | int]
    interruption: Interruption
    progress: Progress
    newest: Checkpoint | None

    def __post_init__(self) -> None:
        prepared = self.prepared
        self._translator = Translator(
            self.config,
            self.trainee.objective.model,
            prepared.src_tokenizer,
            prepared.tgt_tokenizer,
            target_ratio=prepared.train.target_ratio,
        )
        self._tokenizer_checksums = tokenizer_checksums(self.run)
        self._sources = list(prepared.corpus.validation["src"])
        self._references = list(prepared.corpus.validation["tgt"])

    def validate(self) -> ValidationResult | None:
        """Judge the model; given up as soon as the run is to stop, and done again when it goes on."""
        try:
            with self.trainee.judged_weights():
                return validate(
                    self.trainee.objective,
                    self._validation_batches(),
                    self.trainee.precision,
                    translate=self._translate,
                    sources=self._sources,
                    references=self._references,
                )
        except Interrupted:
            return None

    def show(self, result: ValidationResult) -> None:
        """Log a validation with a few of its translations."""
        places = _spread(len(self._sources), self.config.validation.num_samples)
        samples = [(self._sources[i], result.hypotheses[i], self._references[i]) for i in places]
        self.progress.validation(self.trainee.state, result, samples)

    def save(self, figures: dict[str, float], is_best: bool) -> None:
        """Save a checkpoint."""
        started = time.perf_counter()
        training_state = self.trainee.training_state()
        with self.trainee.judged_weights():
            self.newest = self.store.save(
                self.trainee.state.step,
                self.trainee.objective.model.weights(),
                training_state,
                metrics=figures,
                environment=self.environment,
                tokenizers=self._tokenizer_checksums,
                computation=self.config.computation(),
                best=is_best,
                keep=self.config.checkpoint.keep,
            )
        seconds = time.perf_counter() - started
        self.progress.leave_out(seconds)
        LOG.info("saved %s in %.2f seconds", self.newest.name, seconds)

    def save_steps(self) -> None:
        """Save a checkpoint if a step has been taken since the newest."""
        if self.trainee.state.step != (self.newest.step if self.newest else 0):
            self.save({}, False)

    def keep_bad(self, micro_batches: Sequence[Batch], result: StepResult) -> None:
        """Put a batch whose loss or gradient was no number where `mt check` can look into it."""
        newest = self.newest.name if self.newest else None
        keep_bad_batch(self.run, self.trainee.state.step, newest, micro_batches, result)

    def _translate(self, texts: Sequence[str]) -> list[str]:
        with progress_bar(len(texts), unit="sentences") as bar:
            return self._translator.translate(
                texts, advance=bar.update, before_each_batch=self.interruption.check
            )

    def _validation_batches(self) -> Iterator[Batch]:
        pairs = self.prepared.validation
        for indices in ordered_batches(
            pairs.src.lengths, pairs.tgt.lengths, batch_tokens=self.config.training.batch_tokens
        ):
            self.interruption.check()
            yield collate(*pairs.select(indices))


def run_training(
    config: Config,
    run: str | Path | RunDirectory,
    *,
    restart: bool = False,
    from_checkpoint: Path | None = None,
    max_seconds: float | None = None,
) -> Outcome:
    """Train, or go on training, or find that the run is finished.

    Args:
        config: What to train.
        run: Where; made where there is none.
        restart: Move an existing run aside, once the corpus is found to be usable, and begin anew.
        from_checkpoint: Begin a new run that continues from this checkpoint of another.
        max_seconds: How long this sitting may take: then the run is saved and can go on in another.

    Raises:
        MtError: If config, corpus, checkpoints or device do not allow it; nothing that was there is lost.
    """
    run = as_run(run)
    device = choose_device(config.training.device)
    precision = Precision(config.training.precision, device)
    corpus, without = None, ""
    with Interruption(max_seconds) as interruption:
        try:
            if from_checkpoint is not None:
                corpus, without = (
                    _branch(config, run, from_checkpoint, interruption),
                    " without --from-checkpoint",
                )
            elif restart:
                without = " without --restart"
                corpus = _make_room(config, run, interruption) if run.exists else None
        except Interrupted:
            report_stop(interruption, 0, "")
            return Outcome(None, TrainingState(), interruption.exit_code)
        with run.lock():
            return _sit(config, run, device, precision, interruption, corpus, without)


def _make_room(config: Config, run: RunDirectory, interruption: Interruption) -> Corpus:
    """Move the old run aside, but only once what is given is found: a wrong path leaves it where it is."""
    with interruption.at_once():
        corpus = load_corpus(config.data, config.cleaning)
        if config.tokenizer.kind == "file":
            make_tokenizers(corpus.train, config)
    LOG.info("moved the old run to %s", run.set_aside())
    return corpus


def _branch(config: Config, run: RunDirectory, path: Path, interruption: Interruption) -> Corpus:
    """Make a run that has come as far as the checkpoint at ``path``, once all that it needs is found."""
    origin = find_origin(path, run, config)
    with interruption.at_once():
        corpus = load_corpus(config.data, config.cleaning)
    refuse_changed_corpus(origin.run, corpus)
    branch_off(origin, run, config)
    return corpus


def _sit(
    config: Config,
    run: RunDirectory,
    device: torch.device,
    precision: Precision,
    interruption: Interruption,
    corpus: Corpus | None,
    without: str,
) -> Outcome:
    """Do one sitting in a run that is locked; ``corpus`` where it is loaded already.

    ``without`` says what the command that resumes it must not have.
    """
    store = CheckpointStore(run.checkpoints_dir)
    checkpoint = _newest_sound(store)
    if checkpoint is not None:
        refuse_changed_config(run, config)
        refuse_other_computation(run, config, checkpoint)
        refuse_other_tokenizers(run, checkpoint)
    else:
        refuse_lost_checkpoints(run, store, config)
        refuse_config_of_others(run)
        # Of steps that nobody saved; with the new config beside them they could mean something else.
        run.metrics_file.unlink(missing_ok=True)
        write_config(run, config)
    with log_file(run), explain_out_of_memory(config):
        resumed = _load_state(store, checkpoint) if checkpoint else None
        state = resumed[1].state if resumed else TrainingState()
        finished = state.reached_limit(config.training, config.validation)
        if finished is not None and not state.owes_validation:
            return Outcome(finished, state, was_finished=True)
        seed_everything(config.training.seed)
        try:
            with interruption.at_once():
                prepared = prepare(config, run, resuming=checkpoint is not None, corpus=corpus)
        except Interrupted:
            report_stop(interruption, state.step, without)
            return Outcome(None, state, interruption.exit_code)
        model = build_model(config, prepared.src_tokenizer, prepared.tgt_tokenizer).to(device)
        trainee = new_trainee(model, config, precision, state)
        environment = describe_environment(device, precision)
        if checkpoint is not None and resumed is not None:
            _restore(trainee, store, checkpoint, resumed, run)
            # Only now, for a run that is refused its corpus, or is finished, is left as it is.
            write_config(run, config)
            report_resuming(run, config, checkpoint, environment)
        report_model(model, environment)
        finished = _train(config, run, store, prepared, trainee, environment, interruption, checkpoint)
        if finished is None:
            report_stop(interruption, state.step, without)
        else:
            report_end(finished, state, config.validation.metric)
    return Outcome(finished, state, 0 if finished else interruption.exit_code)


def _train(
    config: Config,
    run: RunDirectory,
    store: CheckpointStore,
    prepared: Prepared,
    trainee: Trainee,
    environment: dict[str, str | int],
    interruption: Interruption,
    checkpoint: Checkpoint | None,
) -> str | None:
    """Give the loop what it needs; why the run is finished, or None where it was interrupted."""
    objective, state = trainee.objective, trainee.state
    keep_freed_memory()
    if config.training.compile:
        # The stacks, where the time goes; the loss works in chunks, which gain nothing by it.
        objective.model.encoder.compile(dynamic=True)
        objective.model.decoder.compile(dynamic=True)
    tokenizers = prepared.src_tokenizer, prepared.tgt_tokenizer
    stream = training_batches(config, prepared.train, tokenizers, prepared.places, interruption.check)
    try:
        stream.refuse_position_behind_end(state.epoch, state.batch)
        total_steps = _expected_steps(config, stream, state)
    except Interrupted:
        return None
    with Progress(
        run.tensorboard_dir,
        run.metrics_file,
        state=state,
        total_steps=total_steps,
        metric=config.validation.metric,
    ) as progress:
        if not state.step:
            progress.corpus(prepared.report, prepared.dropped)
        sitting = Sitting(
            config, run, store, prepared, trainee, environment, interruption, progress, checkpoint
        )
        callbacks = Callbacks(
            validate=sitting.validate,
            show=sitting.show,
            save=sitting.save,
            interrupted=interruption,
            keep_bad=sitting.keep_bad,
        )
        try:
            return train(
                objective,
                stream,
                trainee.optimizer,
                trainee.precision,
                config=config,
                state=state,
                callbacks=callbacks,
                progress=progress,
            )
        except Interrupted:
            # Between two steps, while an epoch was made.
            sitting.save_steps()
            return None


def _load_state(store: CheckpointStore, checkpoint: Checkpoint) -> tuple[SavedTraining, SavedValues]:
    """The training state and, verified, its plain values."""
    saved = store.load_training_state(checkpoint)
    with _explain_unusable(checkpoint):
        return saved, read_values(saved, checkpoint.step)


def _restore(
    trainee: Trainee,
    store: CheckpointStore,
    checkpoint: Checkpoint,
    resumed: tuple[SavedTraining, SavedValues],
    run: RunDirectory,
) -> None:
    weights = store.load_model(checkpoint)
    try:
        with _explain_unusable(checkpoint):
            trainee.restore(weights, *resumed)
    except ValueError as error:
        raise CheckpointError(
            f"{checkpoint.folder} does not fit the tokenizers in {run.path}: {error}. "
            "Put the old ones back, or begin anew with --restart."
        ) from error


@contextmanager
def _explain_unusable(checkpoint: Checkpoint) -> Iterator[None]:
    try:
        yield
    except DamagedError as error:
        raise CheckpointError(
            f"Cannot go on from {checkpoint.folder}: {error}. Remove it to go on from the checkpoint "
            "before it, or start over with --restart."
        ) from error


def _newest_sound(store: CheckpointStore) -> Checkpoint | None:
    checkpoint, damaged = store.recover()
    for name, reason in damaged.items():
        LOG.warning("checkpoint %s is damaged and left alone: %s", store.directory / name, reason)
    return checkpoint


def _expected_steps(config: Config, stream: BatchStream, state: TrainingState) -> int | None:
    """At which step the run will end, by those limits that tell; None where none does."""
    training = config.training
    expected = []
    if training.max_steps is not None:
        expected.append(training.max_steps)
    if training.max_epochs is not None:
        expected.append(training.max_epochs * stream.num_steps(state.epoch))
    if training.max_target_tokens is not None:
        tokens_per_step = stream.num_target_tokens(state.epoch) / stream.num_steps(state.epoch)
        expected.append(round(training.max_target_tokens / tokens_per_step))
    return min(expected, default=None)


def _spread(length: int, count: int) -> list[int]:
    """Up to ``count`` places spread evenly over ``length``."""
    count = min(count, length)
    return [length * number // count for number in range(count)]
