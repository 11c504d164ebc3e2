"""Trains a run from its config to its end, or as far as it gets before an interruption."""

import logging
import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from mt import distributed, processes
from mt.config.config import Config
from mt.config.load import load_config
from mt.config.write import config_to_yaml, with_unset_from
from mt.data.batches.stream import batches_of_stages, training_batches
from mt.data.batches.transforms import transforms_of
from mt.data.chunks import pairs_of
from mt.data.corpus import load_corpus
from mt.data.prepare import Prepared, make_tokenizers, missing_sides, prepare
from mt.device import Precision, choose_device, fix_threads_and_malloc, keeping_threads
from mt.errors import ConfigError, Interrupted, RunError
from mt.evaluation.scores import SCORE_NAMES
from mt.files import write_atomically
from mt.inference.loaded_model import build_model
from mt.inference.verify import keep_pairs
from mt.inference.writer import open_writer
from mt.run_directory import RunDirectory, as_run
from mt.training import resume
from mt.training.compiling import compile_objective, is_compiled
from mt.training.counters import Counters
from mt.training.freeze import freeze
from mt.training.init_from import inherit_from_origin, load_initial_weights
from mt.training.interruption import Interruption
from mt.training.lexicon_start import begin_with_lexicon
from mt.training.loop import train
from mt.training.peak import peak_rate
from mt.training.progress import OnMetrics, Progress
from mt.training.run_log import log_file, record_session
from mt.training.session import Session
from mt.training.step import explain_out_of_memory
from mt.training.trackers import check_trackers
from mt.training.train_state import TrainState, new_train_state
from mt.training.validation import deciding_metric

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Outcome:
    """How a session of training ended."""

    finished: str | None
    """Why the run is finished, in words; None if it was interrupted and can be resumed."""
    counters: Counters
    exit_code: int = 0
    was_finished: bool = False
    """Whether the run was finished before this session, which therefore did nothing."""

    def __repr__(self) -> str:
        best = "" if self.counters.best_value is None else f"; best {self.counters.best_value:.2f}"
        how = self.finished or "interrupted, and can be resumed"
        return f"<Outcome: {how}, after {self.counters.step:,} steps{best}>"


def run_training(
    config: Config,
    run: str | Path | RunDirectory,
    *,
    restart: bool = False,
    max_seconds: float | None = None,
    on_metrics: OnMetrics | None = None,
    began: float | None = None,
) -> Outcome:
    """Start a run, resume it, or find that it is finished.

    Args:
        config: The config of the run.
        run: The run directory; it is created if it does not exist.
        restart: Move an existing run aside, once the corpus is known to be usable, and start over.
        max_seconds: The time limit of this session, after which the run is saved and can be resumed.
        on_metrics: Called with the step and the metrics of each point of the curves, such as ``train/loss``.
        began: When the command began, by `time.perf_counter`; now, if not given.

    Raises:
        MtError: If config, corpus, checkpoints or device cannot be used; no existing file is lost.
    """
    run = as_run(run)
    config, precision = settle(config, run, restart=restart)
    began = time.perf_counter() if began is None else began
    with Interruption(max_seconds if processes.IS_FIRST else None, began) as interruption:
        with distributed.connected(precision.device.type):
            outcome = _train_connected(config, run, precision, interruption, on_metrics, restart=restart)
        # Only now, when the processes have parted: the others do not wait for it.
        if processes.IS_FIRST and outcome.finished is not None and not outcome.was_finished:
            _prepare_engine(run, interruption)
    return outcome


def settle(config: Config, run: RunDirectory, *, restart: bool = False) -> tuple[Config, Precision]:
    """The config as the run, its origin and this machine decide what it leaves open, and the precision."""
    check_trackers(config)
    begun = resume.has_begun(run) and not restart
    stored = load_config(run.config_file) if begun else None
    config = resume.resolve_length(config, stored)
    if stored is not None:
        config = with_unset_from(stored, config)
    config = inherit_from_origin(config, run, restart=restart)
    device = choose_device(config.training.device)
    precision = Precision(config.training.precision, device, tf32=config.training.tf32)
    return resume.resolve_auto(config, precision, begun), precision


def _train_connected(
    config: Config,
    run: RunDirectory,
    precision: Precision,
    interruption: Interruption,
    on_metrics: OnMetrics | None,
    *,
    restart: bool,
) -> Outcome:
    """Train while the processes are connected; the first one locks the run, and moves an old one aside."""
    resume.check_equal_processes(config, resume.describe_environment(precision))
    if not processes.IS_FIRST:
        return _train(config, run, precision, interruption)
    size, shares = processes.SIZE, config.training.num_micro_batches
    if size > shares:
        raise ConfigError(
            f"{size} processes cannot share a step of {shares} micro-batches. For steps as large, set "
            f"training.num_micro_batches={size} and "
            f"training.batch_tokens={config.training.batch_tokens * shares // size}."
        )
    try:
        if restart and run.exists:
            # All inputs are loaded first, so that a wrong path leaves the old run in its place.
            with interruption.interrupting_immediately():
                corpus = load_corpus(config.data, config.cleaning)
                if config.tokenizer.kind == "file":
                    make_tokenizers(corpus.train, config)
            LOG.info("moved the old run to %s", run.move_aside())
    except Interrupted:
        _report_end(None, Counters(), config, interruption)
        return Outcome(None, Counters(), interruption.exit_code)
    with run.lock():
        return _train(config, run, precision, interruption, on_metrics)


def _train(
    config: Config,
    run: RunDirectory,
    precision: Precision,
    interruption: Interruption,
    on_metrics: OnMetrics | None = None,
) -> Outcome:
    """Train in one process: the first begins or resumes the run, and the others do what it does."""
    point = resume.find_resume_point(run, config) if processes.IS_FIRST else None
    finished, step = distributed.broadcast((point.finished, point.checkpoint.step) if point else (None, 0))
    if not processes.IS_FIRST and step and finished is None:
        point = resume.find_resume_point(run, config)
        if point is None or point.checkpoint.step != step:
            who = f"process {processes.RANK}"
            raise RunError(f"{who} finds no step {step:,} in {run.path}, which all machines must share.")
    counters = point.values.counters if point else Counters()
    if finished is not None:
        run.stopped_file.unlink(missing_ok=True)
        return Outcome(finished, counters, was_finished=True)
    with log_file(run), explain_out_of_memory():
        try:
            with prepared_session(config, run, precision, interruption, point, on_metrics) as (
                state,
                session,
            ):
                counters = state.counters
                finished = train(state, session)
        except Interrupted:
            interruption.all_processes_know = True
        if processes.IS_FIRST:
            reason = _report_end(finished, counters, config, interruption)
            record_session(run, "end", reason=reason)
            if finished is None:
                write_atomically(run.stopped_file, f"{interruption.reason}\n")
    return Outcome(finished, counters, 0 if finished else interruption.exit_code)


def _prepare(config: Config, run: RunDirectory, *, resuming: bool) -> Prepared:
    if not resuming:
        with keeping_threads(), distributed.alone():
            # All writers are open before any of them writes.
            for writing in missing_sides(config, run, open_writer):
                writing.side.write(writing.texts, writing.direction, writing.writer, writing.originals)
    return prepare(config, run, resuming=resuming)


@contextmanager
def prepared_session(
    config: Config,
    run: RunDirectory,
    precision: Precision,
    interruption: Interruption,
    point: resume.ResumePoint | None,
    on_metrics: OnMetrics | None,
) -> Iterator[tuple[TrainState, Session]]:
    """Prepare the data, and build or restore the model, for the duration of the ``with`` block."""
    torch.manual_seed(config.training.seed)
    with interruption.interrupting_immediately():
        # The other processes use the tokenizers that the first one has saved.
        resuming = point is not None or not processes.IS_FIRST
        prepared = distributed.first_rank_first(lambda: _prepare(config, run, resuming=resuming))
    tokenizers = prepared.tokenizers
    model = build_model(config, *tokenizers)
    if point is None and config.init_from.run is not None:
        load_initial_weights(model, config, tokenizers)
    elif point is None and config.training.lexicon_start:
        begin_with_lexicon(model, prepared.train)
    freeze(model, config.training.freeze)
    model.to(precision.device)
    state = new_train_state(model, config, precision, lambda: interruption.signal is not None)
    environment = resume.describe_environment(precision)
    if point is not None:
        point.restore(state)
        resume.report_resuming(point, config, environment)
    if config.init_from.run is not None:
        # For the record of each checkpoint; the origin may disappear.
        environment["init_from"] = f"{config.init_from.run}@{config.init_from.checkpoint}"
        environment["init_from_sha256"] = str(config.init_from.sha256)
    size = f"{sum(parameter.numel() for parameter in model.parameters()):,}"
    where = f"{environment['device']} ({environment['device_name']})"
    LOG.info("model: %s parameters, in %s on %s", size, precision.name, where)
    if precision.device.type == "cuda" and precision.name == "float32" and not config.training.tf32:
        LOG.warning(
            "float32 does not use tensor cores: an A100 multiplies 16 times as fast in bf16, and 8 times as "
            "fast with TF32. In a new run, set training.precision to mixed, or training.tf32 to true."
        )
    fix_threads_and_malloc()
    transforms = transforms_of(config, prepared.corpus, tokenizers)
    stream = training_batches(config, prepared.train, tokenizers, transforms)
    shares = [prepared.corpus.shares_in(stage.weights) for stage in config.training.stages.values()]
    stages = batches_of_stages(stream, shares)
    batches = stages[config.training.stage_at(state.counters.step)[0]]
    # Preparing an epoch may take longer than a step is allowed to.
    distributed.barrier_after(lambda: batches.epoch(state.counters.epoch))
    # About so many; epochs differ by a few steps.
    steps = (config.training.max_epochs or math.inf) * batches.num_steps(state.counters.epoch)
    total_steps = min(config.training.max_steps or math.inf, steps)
    config = config.with_options(training={"compile": is_compiled(config.training, total_steps)})
    if config.training.compile:
        compile_objective(state.objective)
    if processes.IS_FIRST:
        # Written only now, because a run that is refused or already finished keeps its config.
        write_atomically(run.config_file, config_to_yaml(config))
        keep_pairs(run, pairs_of(prepared.corpus.validation), tokenizers, config.data.max_length)
    if processes.ARE_SEVERAL:
        state.try_out(distributed.barrier_after(lambda: batches.largest_batch(state.counters.epoch)))
    with ExitStack() as stack:
        progress = None
        if processes.IS_FIRST:
            progress = Progress(
                run,
                config,
                state.counters,
                total_steps=round(total_steps) if math.isfinite(total_steps) else None,
                peak_rate=peak_rate(state.objective, precision.device),
                on_metrics=on_metrics,
            )
            stack.enter_context(progress)
        newest = point.checkpoint if point else None
        session = Session(config, run, prepared, stages, environment, interruption, progress, newest)
        # Removed only now, because a refused start, as of a changed corpus, must keep it.
        run.stopped_file.unlink(missing_ok=True)
        record_session(run, "training", step=state.counters.step)
        # On a CPU, the thread would take time from those that compute.
        for of_stage in stages if precision.device.type == "cuda" else []:
            stack.enter_context(of_stage.collating_ahead(pinned=True))
        yield state, session


def _prepare_engine(run: RunDirectory, interruption: Interruption) -> None:
    """Convert the best checkpoint for the fast engine, so that the first translation need not wait for it."""
    if os.environ.get("MT_ENGINE") == "torch" or find_spec("ctranslate2") is None:
        return
    try:
        from mt.inference.engine.convert import convert

        with interruption.interrupting_immediately():
            convert(run, "best")
    # The run is finished and saved: whatever happens here does not make it fail.
    except (Exception, Interrupted) as error:
        why = interruption.reason if isinstance(error, Interrupted) else str(error) or type(error).__name__
        LOG.warning("the fast engine is left for the first translation: %s", why)


def _report_end(finished: str | None, counters: Counters, config: Config, interruption: Interruption) -> str:
    """Log how the session ended, and return it."""
    if finished is None:
        where = f"at step {counters.step:,}, saved" if counters.step else "before the first step"
        reason = f"Stopped {where}: {interruption.reason}."
    else:
        done = f"{counters.step:,} steps, {counters.num_target_tokens:,} target tokens"
        reason = f"Finished: {finished}, after {done} and {counters.seconds / 60:.1f} minutes."
    LOG.info("%s", reason)
    if finished is not None and counters.best_value is not None:
        metric = deciding_metric(config.validation)
        LOG.info("Best validation %s: %.2f", SCORE_NAMES.get(metric, metric), counters.best_value)
    return reason
