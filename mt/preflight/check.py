"""`mt check --config`: report before training what a run will be like; only the cache is written."""

import os
import shutil
from collections.abc import Iterator

import torch

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.data.batches.stream import BatchStream, Epoch, training_batches
from mt.data.corpus import load_corpus
from mt.data.prepare import load_tokenizers, refuse_changed_corpus
from mt.data.prepared_cache import aligned_places
from mt.device import Precision, choose_device
from mt.display import aligned, counted, size
from mt.errors import Remedy, RunError
from mt.inference.loaded_model import build_model
from mt.preflight.forecast import (
    Pace,
    forecast,
    warn_of_disk,
    warn_of_other_work,
    warn_of_schedule,
    warn_of_validation,
)
from mt.preflight.layout import CheckSection, between, count, duration
from mt.preflight.text import (
    batch_section,
    corpus_section,
    length_section,
    look_at,
    sample_section,
    vocabulary_section,
)
from mt.preflight.trial import (
    FLOAT_BYTES,
    ModelSize,
    Speed,
    Trial,
    largest_batches,
    measure_pace,
    measure_size,
    refuse_too_large,
)
from mt.run_directory import RunDirectory
from mt.seeding import seed_everything
from mt.training.counters import Counters
from mt.training.resume import foresee_resume_point
from mt.training.schedule import has_ended
from mt.training.step import explain_out_of_memory

MOST_TIMED_STEPS = 40
MOST_TIMED_SECONDS = 12.0


def preflight(config: Config, run: RunDirectory) -> Iterator[CheckSection]:
    """Report, section by section, what training with ``config`` in ``run`` will be like."""
    device = choose_device(config.training.device)
    precision = Precision(config.training.precision, device, tf32=config.training.tf32)
    yield _config_section(config, run, device, precision)
    run.check_usable()
    point = foresee_resume_point(run, CheckpointStore(run.checkpoints_dir), config)
    if point and (reason := point.why_finished(config)):
        verdict = (
            "This run is finished, and its cosine schedule has ended: to train longer, raise that limit and "
            "schedule.total_steps in a new run."
            if has_ended(point.checkpoint.step, config.schedule)
            else "This run is finished: raise that limit to train it further."
        )
        yield CheckSection("the run", [f"finished: {reason}"], verdict=verdict)
        return
    done = point.values.counters if point else None
    del point  # It has all weights.
    corpus = load_corpus(config.data, config.cleaning)
    if done:
        refuse_changed_corpus(run, corpus)
    yield corpus_section(corpus)
    text = look_at(corpus, config, load_tokenizers(run) if done else None)
    yield sample_section(text)
    yield vocabulary_section(config, text)
    pairs, lengths = length_section(config, text)
    yield lengths
    places = aligned_places(pairs) if config.training.guided_alignment else None
    stream = training_batches(config, pairs, text.tokenizers, places)
    epoch = stream.epoch(0)
    yield batch_section(epoch.pairs, list(epoch.batches), text.scale)
    with explain_out_of_memory(config):
        model_size = measure_size(config, *text.tokenizers)
    yield CheckSection(
        f"model: {count(model_size.num_parameters)} parameters",
        aligned([(name, count(number)) for name, number in model_size.parts.items()], num_texts=1),
    )
    refuse_too_large(model_size, device)
    seed_everything(config.training.seed)
    with explain_out_of_memory(config):
        trial = Trial(config, build_model(config, *text.tokenizers).to(device), precision)
        largest = _largest_section(trial, stream, epoch, model_size)
    yield largest
    with explain_out_of_memory(config):
        speed, pace = measure_pace(
            trial, stream, text, max_steps=MOST_TIMED_STEPS, max_seconds=MOST_TIMED_SECONDS
        )
    yield _run_section(config, run, speed, pace, model_size, done)


def _config_section(
    config: Config, run: RunDirectory, device: torch.device, precision: Precision
) -> CheckSection:
    data, model, schedule, training = config.data, config.model, config.schedule, config.training
    peak = "" if schedule.kind == "noam" else f" to {schedule.learning_rate:g}"
    limits = {
        name: getattr(training, name)
        for name in ("max_steps", "max_epochs", "max_target_tokens", "max_minutes")
    } | {"patience": config.validation.patience}
    rows = [
        ("corpus", f"{data.path}{f' ({data.name})' if data.name else ''}, from {data.src} to {data.tgt}"),
        (
            "model",
            f"{model.num_encoder_layers} + {model.num_decoder_layers} layers, d_model {model.d_model}, "
            f"{counted(model.num_heads, 'head')}, d_ff {model.d_ff}, dropout {model.dropout:g}",
        ),
        ("learning rate", f"{schedule.kind}, warm-up of {counted(schedule.warmup_steps, 'step')}{peak}"),
        ("step", f"{training.num_micro_batches} x {training.batch_tokens:,} tokens in {precision.name}"),
        ("device", str(device)),
        ("ends at", ", ".join(f"{name} {limit:,}" for name, limit in limits.items() if limit is not None)),
        ("run", f"{run.path}{', which exists already' if run.exists else ''}"),
    ]
    return CheckSection("config", aligned(rows))


def _largest_section(trial: Trial, stream: BatchStream, epoch: Epoch, model_size: ModelSize) -> CheckSection:
    largest = largest_batches(epoch.pairs, list(epoch.batches))
    step = trial.take_largest_step(stream, largest)
    src_length, written, seconds = trial.write_longest(epoch.pairs, largest[-1])
    weights = FLOAT_BYTES * model_size.num_parameters
    rows = [
        *(("batch", f"{rows} x {src} source and {tgt} target tokens") for rows, src, tgt in step.shapes),
        ("step", f"loss {step.result.loss:.2f}, in {duration(step.seconds)}"),
        (
            "search",
            f"{counted(src_length, 'token')} read, {len(written.ids)} written, in {duration(seconds)}",
        ),
        ("weights", size(weights)),
        ("gradients", size(weights)),
        ("moments", size(FLOAT_BYTES * model_size.num_moments)),
    ]
    if model_size.num_averages:
        rows.append(("average", size(FLOAT_BYTES * model_size.num_averages)))
    if step.activations is not None and step.peak is not None:
        rows.append(("activations", f"{size(step.activations)}, measured"))
        rows.append(("total", f"{size(step.peak)} at the peak, measured"))
    return CheckSection("the largest batches, and memory", aligned(rows))


def _run_section(
    config: Config,
    run: RunDirectory,
    speed: Speed,
    pace: Pace,
    model_size: ModelSize,
    done: Counters | None,
) -> CheckSection:
    expected = forecast(config, pace)
    at_least = "" if expected.is_certain else "at least "
    one = model_size.saved_bytes
    # The ones that are kept, the best, and the one that is being saved, less those that exist.
    num_saved = len(CheckpointStore(run.checkpoints_dir).names())
    needed = max(1, config.checkpoint.keep + 2 - num_saved) * one
    free = _free_disk(run)
    if one > free:
        raise RunError(
            f"a checkpoint takes {size(one)}, but only {size(free)} are free where {run.path} will be. "
            "Free some space.",
            Remedy.OTHER_RUN,
        )
    busy = list(warn_of_other_work(os.getloadavg()[0], os.cpu_count() or 1, speed.processor_share))
    # On an idle machine, the fastest quarter would have been faster still.
    slowest, fastest = speed.range[0], speed.range[1] / speed.processor_share
    least, most = (forecast(config, pace.at(each)).seconds for each in (fastest, slowest))
    not_compiled = ", not compiled" if config.training.compile else ""
    rows = [
        *(
            ("machine", "busy with other work: the longer time includes it, the shorter one does not")
            for _ in busy
        ),
        (
            "speed",
            f"{count(speed.tokens_per_second)} target tokens a second, measured on "
            f"{counted(speed.num_steps, 'step')} in {duration(speed.seconds)}{not_compiled}",
        ),
        ("length", f"{counted(expected.num_steps, 'step')}, limited by {expected.ended_by}"),
        *((("done", f"{counted(done.step, 'step')} of them, in {duration(done.seconds)}"),) if done else ()),
        ("epochs", f"{expected.num_epochs:.1f}, of {counted(round(pace.steps_per_epoch), 'step')} each"),
        (
            "time",
            f"{at_least}{between(least, most)}; at this speed {duration(expected.training_seconds)} of "
            f"training and {duration(expected.validating_seconds)} of "
            f"{counted(expected.num_validations, 'validation')}",
        ),
        ("checkpoints", f"{count(expected.num_checkpoints)}, and each new best; {size(one)} each"),
        (
            "disk space",
            f"up to {size(needed)} of {'more ' if num_saved else ''}checkpoints; {size(free)} are free",
        ),
    ]
    r_drop = config.useless_r_drop()
    found = [
        *busy,
        *([r_drop] if r_drop else []),
        *warn_of_schedule(config, expected),
        *warn_of_validation(config, expected),
        *warn_of_disk(needed, free, str(run.path)),
    ]
    verdict = f"This run can continue from step {done.step:,}." if done else "This run can begin."
    return CheckSection("the run", aligned(rows), found, verdict)


def _free_disk(run: RunDirectory) -> int:
    """Bytes free where the run will be."""
    return shutil.disk_usage(run.nearest_folder()).free
