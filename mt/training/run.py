"""Trains a run from its config to its end, or as far as it gets before an interruption."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from mt import distributed, processes
from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.write import fixed_options
from mt.data.batches.stream import BatchStream, training_batches
from mt.data.corpus import Corpus, load_corpus
from mt.data.prepare import Prepared, check_same_corpus, make_tokenizers, prepare
from mt.device import Precision, choose_device, fix_num_threads, keep_freed_memory, multiplies_bf16_fast
from mt.display import counted, show_only_errors
from mt.errors import ConfigError, DeviceError, Interrupted, MtError, RunError
from mt.evaluation.scores import SCORE_NAMES
from mt.files import write_atomically
from mt.inference.loaded_model import build_model
from mt.run_directory import RunDirectory, as_run
from mt.training.branch import branch_off, find_origin
from mt.training.compiling import compile_objective
from mt.training.counters import Counters
from mt.training.freeze import freeze
from mt.training.init_from import load_initial_weights, with_origin
from mt.training.interruption import Interruption
from mt.training.loop import train
from mt.training.loss import Objective
from mt.training.progress import Progress
from mt.training.resume import (
    ResumePoint,
    as_begun,
    check_equal_processes,
    describe_environment,
    find_resume_point,
    report_resuming,
    write_config,
)
from mt.training.run_log import log_file, record_session, recorded_session
from mt.training.schedule import has_ended
from mt.training.session import Session
from mt.training.step import explain_out_of_memory
from mt.training.train_state import TrainState, new_train_state
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a session of training ended."""

    finished: str | None
    """Why the run is finished, in words; None if it was interrupted and can be resumed."""
    counters: Counters
    exit_code: int = 0
    was_finished: bool = False
    """Whether the run was finished before this session, which therefore did nothing."""
    was_started: bool = True
    """False if it was interrupted before an old run was moved aside, or a new one was branched off."""


def run_training(
    config: Config,
    run: str | Path | RunDirectory,
    *,
    restart: bool = False,
    from_checkpoint: str | Path | None = None,
    max_seconds: float | None = None,
) -> Outcome:
    """Start a run, resume it, or find that it is finished.

    Args:
        config: The config of the run.
        run: The run directory; it is created if it does not exist.
        restart: Move an existing run aside, once the corpus is known to be usable, and start over.
        from_checkpoint: Start a new run that continues from this checkpoint of another run.
        max_seconds: The time limit of this session, after which the run is saved and can be resumed.

    Raises:
        MtError: If config, corpus, checkpoints or device cannot be used; no existing file is lost.
    """
    run = as_run(run)
    begun = run if from_checkpoint is None else RunDirectory(Path(from_checkpoint).absolute().parent.parent)
    config = with_origin(config if restart else as_begun(config, begun), begun, restart=restart)
    device = choose_device(config.training.device)
    try:
        precision = Precision(config.training.precision, device, tf32=config.training.tf32)
    except DeviceError as error:
        # A run that has begun keeps its precision.
        if not run.exists or restart:
            raise
        raise DeviceError(
            f"{error} Use another run directory with --run PATH, or start over with --restart, which moves "
            "the old run aside."
        ) from error
    with (
        Interruption(max_seconds if processes.is_first() else None) as interruption,
        distributed.connected(device.type),
    ):
        setup = _Setup(config, run, device, precision, interruption)
        check_equal_processes(config, describe_environment(device, precision))
        if not processes.is_first():
            return _train_with_the_first(setup)
        _check_no_idle_process(config)
        try:
            checkpoint = None if from_checkpoint is None else Path(from_checkpoint)
            corpus = _make_place(config, run, interruption, restart, checkpoint)
        except Interrupted:
            _report_end(None, Counters(), config.validation.metric, interruption)
            return Outcome(None, Counters(), interruption.exit_code, was_started=False)
        with run.lock():
            point = find_resume_point(run, setup.store, config)
            counters = point.values.counters if point else Counters()
            with log_file(run):
                finished = point.why_finished(config) if point else None
                distributed.broadcast(_Start(finished is not None, counters.step))
                if finished is not None:
                    run.stopped_file.unlink(missing_ok=True)
                    return Outcome(finished, counters, was_finished=True)
                with recorded_session(run), explain_out_of_memory(config):
                    try:
                        with _ready(setup, point, counters, corpus) as ready:
                            # Not earlier: a refusal, such as that of a changed corpus, leaves it there.
                            run.stopped_file.unlink(missing_ok=True)
                            record_session(run, "training", step=counters.step)
                            finished = train(*ready)
                    except Interrupted:
                        interruption.agree(stop=True)
                        finished = None
                    reason = _report_end(finished, counters, config.validation.metric, interruption)
                    record_session(run, "end", reason=reason)
                if finished is None:
                    write_atomically(run.stopped_file, f"{interruption.reason}\n")
        if finished is not None:
            _prepare_engine(run, interruption)
        return Outcome(finished, counters, 0 if finished else interruption.exit_code)


@dataclass(frozen=True)
class _Setup:
    """What training needs besides its state and its data, in each process."""

    config: Config
    run: RunDirectory
    device: torch.device
    precision: Precision
    interruption: Interruption

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.run.checkpoints_dir)


@dataclass(frozen=True)
class _Start:
    """What the first process tells the others when training begins."""

    is_finished: bool
    step: int
    """The step of the checkpoint that training resumes from; 0 for a new run."""


def _train_with_the_first(setup: _Setup) -> Outcome:
    """Train as one of the other processes, which only write their errors."""
    show_only_errors()
    start = distributed.broadcast(_Start(is_finished=False, step=0))
    if start.is_finished:
        return Outcome("the run is finished", Counters(), was_finished=True)
    with log_file(setup.run), explain_out_of_memory(setup.config):
        point = find_resume_point(setup.run, setup.store, setup.config) if start.step else None
        counters = point.values.counters if point else Counters()
        if counters.step != start.step:
            raise RunError(
                f"process {processes.rank()} finds no checkpoint of step {start.step:,} in "
                f"{setup.run.path}: all machines must share this folder."
            )
        try:
            with _ready(setup, point, counters, None) as ready:
                finished = train(*ready)
        except Interrupted:
            setup.interruption.agree(stop=True)
            finished = None
    return Outcome(finished, counters, 0 if finished else setup.interruption.exit_code)


@contextmanager
def _ready(
    setup: _Setup, point: ResumePoint | None, counters: Counters, corpus: Corpus | None
) -> Iterator[tuple[TrainState, BatchStream, Session]]:
    """Prepare the data, and build or restore the model, for the duration of the ``with`` block."""
    config, run, interruption = setup.config, setup.run, setup.interruption
    is_first = processes.is_first()
    torch.manual_seed(config.training.seed)
    with interruption.at_once():
        # The other processes use the tokenizers that the first one has saved.
        resuming = point is not None or not is_first
        prepared = distributed.first_rank_first(
            lambda: prepare(config, run, resuming=resuming, corpus=corpus)
        )
    tokenizers = prepared.src_tokenizer, prepared.tgt_tokenizer
    model = build_model(config, *tokenizers)
    if point is None and config.init_from.run is not None:
        load_initial_weights(model, config, *tokenizers)
    freeze(model, config.training.freeze)
    model.to(setup.device)
    train_state = new_train_state(model, config, setup.precision, counters)
    environment = describe_environment(setup.device, setup.precision)
    if point is not None:
        point.restore(train_state, run)
        if is_first:
            # Not earlier: a run that is refused or already finished keeps its config.
            write_config(run, config)
        report_resuming(run, config, point, environment)
    if config.init_from.run is not None:
        # For the record of each checkpoint; the origin may disappear.
        environment["init_from"] = f"{config.init_from.run}@{config.init_from.checkpoint}"
        environment["init_from_sha256"] = str(config.init_from.sha256)
    _report_model(model, environment)
    _prepare_process(train_state.objective, config)
    # Preparing an epoch may take longer than a step is allowed to.
    batches = distributed.barrier_after(lambda: _batches(config, prepared, counters))
    if processes.are_several():
        train_state.try_out(distributed.barrier_after(lambda: batches.largest_batch(counters.epoch)))
    with _progress(config, run, prepared, batches, counters) if is_first else nullcontext() as progress:
        session = Session(config, run, setup.store, prepared, environment, interruption, progress)
        session.newest = point.checkpoint if point else None
        # On a CPU, the thread would take time from those that compute.
        with batches.collating_ahead(pinned=True) if setup.device.type == "cuda" else nullcontext():
            yield train_state, batches, session


def _check_no_idle_process(config: Config) -> None:
    """Check that each process has a micro-batch in each full step."""
    size, each = processes.size(), config.training.num_micro_batches
    if size > each:
        tokens = config.training.batch_tokens * each // size
        same_size = (
            f", or, for steps of the same size, set training.num_micro_batches={size} and "
            f"training.batch_tokens={tokens}"
        )
        raise ConfigError(
            f"{size} processes cannot share a step of {each} micro-batch{'es' if each > 1 else ''} "
            f"(training.num_micro_batches). Start at most {each}{same_size if tokens else ''}."
        )
    if each % size:
        turns = -(-each // size)
        LOG.warning(
            "%d micro-batches on %d processes: %.0f %% of the time is spent waiting. Use a multiple of %d "
            "(training.num_micro_batches).",
            each,
            size,
            100 * (1 - each / (turns * size)),
            size,
        )


def _make_place(
    config: Config, run: RunDirectory, interruption: Interruption, restart: bool, from_checkpoint: Path | None
) -> Corpus | None:
    """Move an old run aside, or branch off a new one; return the corpus if it had to be loaded first."""
    if from_checkpoint is not None:
        origin = find_origin(from_checkpoint, run, config)
        with interruption.at_once():
            corpus = load_corpus(config.data, config.cleaning)
        check_same_corpus(origin.run, corpus)
        branch_off(origin, run, config)
        return corpus
    if restart and run.exists:
        # All inputs are loaded first, so that a wrong path leaves the old run in its place.
        with interruption.at_once():
            corpus = load_corpus(config.data, config.cleaning)
            if config.tokenizer.kind == "file":
                make_tokenizers(corpus.train, config)
        LOG.info("moved the old run to %s", run.set_aside())
        return corpus
    return None


def _prepare_process(objective: Objective, config: Config) -> None:
    """Fix the number of threads, keep freed memory, and compile what is trained if configured."""
    fix_num_threads()
    keep_freed_memory()
    if config.training.compile:
        compile_objective(objective)


def _batches(config: Config, prepared: Prepared, counters: Counters) -> BatchStream:
    tokenizers = prepared.src_tokenizer, prepared.tgt_tokenizer
    batches = training_batches(config, prepared.train, tokenizers, prepared.places)
    batches.epoch(counters.epoch)
    return batches


def _progress(
    config: Config, run: RunDirectory, prepared: Prepared, batches: BatchStream, counters: Counters
) -> Progress:
    total_steps = _expected_steps(config, batches, counters)
    progress = Progress(
        run,
        counters=counters,
        total_steps=total_steps,
        metric=config.validation.metric,
        clip_norm=config.training.clip_norm,
    )
    if progress.starts_curves:
        progress.show_options(fixed_options(config))
        progress.show_corpus(prepared.report, prepared.dropped)
    # Other limits than training.max_steps only give about the number of steps.
    # If it has ended already, the loop says so.
    schedule = config.schedule
    if (
        total_steps
        and has_ended(round(total_steps / 1.05), schedule)
        and not has_ended(counters.step, schedule)
    ):
        LOG.warning(
            "the cosine schedule reaches zero at schedule.total_steps (%s), but the limits of this run allow "
            "about %s, and the model learns nothing in the steps after that. Lower the limit, or start a new "
            "run with a greater total.",
            f"{schedule.total_steps:,}",
            counted(total_steps, "step"),
        )
    return progress


def _expected_steps(config: Config, batches: BatchStream, counters: Counters) -> int | None:
    """The step at which the run will end by its limits; None if that cannot be predicted."""
    training = config.training
    expected = []
    if training.max_steps is not None:
        expected.append(training.max_steps)
    if training.max_epochs is not None:
        expected.append(training.max_epochs * batches.num_steps(counters.epoch))
    if training.max_target_tokens is not None:
        tokens_per_step = batches.num_target_tokens(counters.epoch) / batches.num_steps(counters.epoch)
        expected.append(round(training.max_target_tokens / tokens_per_step))
    return min(expected, default=None)


def _report_model(model: Transformer, environment: dict[str, str | int]) -> None:
    LOG.info(
        "model: %s parameters, in %s on %s (%s, %s)",
        f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        environment["precision"],
        environment["device"],
        environment["device_name"],
        counted(int(environment["num_threads"]), "thread"),
    )
    device = model.output.weight.device
    if environment["precision"] == "float32" and multiplies_bf16_fast(device):
        LOG.info("this %s is faster in bf16: for a new run, consider training.precision=auto", device.type)


def _prepare_engine(run: RunDirectory, interruption: Interruption) -> None:
    """Convert the best checkpoint for the fast engine, so that the first translation need not wait for it."""
    if os.environ.get("MT_ENGINE") == "torch" or find_spec("ctranslate2") is None:
        return
    from mt.inference.engine.convert import convert

    try:
        with interruption.at_once():
            convert(run, "best")
    except (MtError, OSError, Interrupted) as error:
        LOG.warning("the fast engine is left for the first translation: %s", error)


def _report_end(finished: str | None, counters: Counters, metric: str, interruption: Interruption) -> str:
    """Log how the session ended, and return it."""
    if finished is None:
        where = f"at step {counters.step:,}, saved" if counters.step else "before the first step"
        reason = f"Stopped {where}: {interruption.reason}."
    else:
        reason = (
            f"Finished: {finished}, after {counters.step:,} steps, {counters.num_target_tokens:,} target "
            f"tokens and {counters.seconds / 60:.1f} minutes."
        )
    LOG.info("%s", reason)
    if finished is not None and counters.best_value is not None:
        LOG.info("Best validation %s: %.2f", SCORE_NAMES.get(metric, metric), counters.best_value)
    return reason
