"""`mt check --config`: find out before training what a run will be like; only the cache is written."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.data.batches.alignment import align
from mt.data.corpus import Corpus, load_corpus
from mt.data.corpus_report import cleaning_table
from mt.data.prepare import check_same_corpus, load_tokenizers
from mt.data.suspicions import corpus_warnings
from mt.display import counted, size
from mt.preflight import forecast
from mt.preflight.text import (
    Numbers,
    Text,
    Unknown,
    encode,
    lengths,
    look_at,
    num_running_words,
    spread,
    unknown_words,
)
from mt.preflight.trial import FIXED_SECONDS, LargestStep, ModelSize, Sample, Trial
from mt.run_directory import RunDirectory, as_run
from mt.training.counters import Counters
from mt.training.peak import share_of_peak
from mt.training.resume import find_resume_point
from mt.training.run import settle
from mt.training.schedule import has_ended
from mt.training.step import explain_out_of_memory

NUM_SAMPLES = 3


class Section(NamedTuple):
    """A part of the report: a line, and details with their names."""

    name: str
    summary: str
    details: Sequence[tuple[str, str]] = ()


class Conclusion(NamedTuple):
    """What is left to say after the report: whether this run can begin or go on, and warnings."""

    verdict: str
    warnings: Sequence[str] = ()


def preflight(
    config: Config, run: str | Path | RunDirectory, show: Callable[[Section], object] = lambda section: None
) -> Conclusion:
    """Find out what training will be like, and time a few steps; only the cache is written.

    Args:
        config: The config of the run.
        run: The run directory, which need not exist.
        show: Called with each section of the report, once it is known.

    Raises:
        MtError: If the run cannot begin or continue.
    """
    started, run = time.perf_counter(), as_run(run)
    config, precision = settle(config, run)
    exists = "which exists already" if run.exists else "which is new"
    show(Section("run", f"{run.path}, {exists}, on {precision.device} in {precision.name}"))
    store = CheckpointStore(run.checkpoints_dir)
    point = find_resume_point(run, config, foreseen=True)
    if point and (reason := point.finished):
        has_no_rate = has_ended(point.checkpoint.step, config.schedule)
        limit = "that limit and schedule.total_steps in a new run" if has_no_rate else "that limit"
        return Conclusion(f"This run is finished ({reason}): to train longer, raise {limit}.")
    done = point.values.counters if point else None
    del point  # It has all weights.
    corpus = load_corpus(config.data, config.cleaning)
    if done:
        check_same_corpus(run, corpus)
    show(_corpus_section(corpus))
    text = look_at(corpus, config, load_tokenizers(run) if done else None)
    unknown = unknown_words(text)
    show(_vocabulary_section(text, unknown))
    pairs, dropped = encode(config, text)
    src_lengths, tgt_lengths = lengths(text)
    show(_length_section(text, src_lengths, tgt_lengths, dropped))
    places = align(pairs) if config.training.guided_alignment else None
    sample = Sample(config, text, pairs, FIXED_SECONDS + time.perf_counter() - started, places)
    with explain_out_of_memory():
        trial = Trial(sample)
        parts = [(name, f"{number:,}") for name, number in trial.size.parts.items()]
        show(Section("model", counted(trial.size.num_parameters, "parameter"), parts))
        show(_memory_section(trial.take_largest_step(), trial.size))
        pace = trial.pace(trial.time_steps())
    expected = forecast.forecast(config, pace)
    show(_time_section(config, pace, expected, done, trial.peak_rate))
    folder = next(folder for folder in (run.path.absolute(), *run.path.absolute().parents) if folder.exists())
    one, free = trial.size.saved_bytes, shutil.disk_usage(folder).free
    # The ones that are kept, the best, and the one that is being saved, less those that exist.
    needed = max(1, config.checkpoint.keep + 2 - len(store.names())) * one
    number = f"{expected.num_checkpoints:,}, and each new best; {size(one)} each"
    disk = f"up to {size(needed)} of checkpoints; {size(free)} are free"
    show(Section("disk", disk, [("checkpoints", number)]))
    longest = int(max(src_lengths.max(), tgt_lengths.max()))
    warnings = [
        *corpus_warnings(config, corpus),
        *forecast.warn_of_held_out_pairs(config, corpus),
        *forecast.warn_of_vocabulary(config, unknown, num_running_words(text.train) * text.scale),
        *forecast.warn_of_text(config, text, dropped["too long"] / len(text.train), longest),
        *forecast.warn_of_schedule(config, expected),
        *forecast.warn_of_validation(config, expected),
        *forecast.warn_of_disk(needed, free, str(run.path)),
    ]
    verdict = f"This run can continue from step {done.step:,}." if done else "This run can begin."
    return Conclusion(verdict, warnings)


def _corpus_section(corpus: Corpus) -> Section:
    splits = corpus.report.splits
    details = [(str(name), f"{split.where_from}, {', '.join(split.parts)}") for name, split in splits.items()]
    details += [("cleaning", line) for line in cleaning_table(splits["train"], {}).splitlines()]
    num_dropped = sum(splits["train"].dropped.values())
    return Section(
        "corpus",
        f"{counted(len(corpus.train), 'training pair')} and {num_dropped:,} dropped, "
        f"{len(corpus.validation):,} validation, {len(corpus.test):,} test",
        # Otherwise it is a warning.
        details if corpus.report.has_leaked else [*details, ("leaks", corpus.report.leak_sentence)],
    )


def _vocabulary_section(text: Text, unknown: Mapping[str, Unknown]) -> Section:
    sizes = " and ".join(f"{tokenizer.size:,} {name}" for _, name, tokenizer in text.sides)
    details = [
        (where, f"{words.num_unknown:,} of {words.num_words:,} words unknown")
        for where, words in unknown.items()
    ]
    for pair in spread(text.evaluation["validation"], NUM_SAMPLES):
        for side, name, tokenizer in text.sides:
            ids = tokenizer.encode(pair[side])
            details += [
                (name, pair[side]),
                ("tokens", " ".join(tokenizer.tokens(ids))),
                ("decoded", tokenizer.decode(ids)),
            ]
    return Section(
        "vocabulary",
        f"{sizes} entries; up to {max(words.share for words in unknown.values()):.1%} of the held-out words "
        "are unknown",
        details,
    )


def _length_section(text: Text, src: Numbers, tgt: Numbers, dropped: Mapping[str, int]) -> Section:
    details = [
        (f"95 % of {name}", f"up to {int(np.quantile(side, 0.95, method='inverted_cdf'))} tokens")
        for name, side in (("sources", src), ("targets", tgt))
    ]
    details += [
        (f"dropped as {reason}", counted(round(number * text.scale), "training pair"))
        for reason, number in dropped.items()
        if number
    ]
    return Section(
        "lengths",
        f"{src.mean():.1f} source and {tgt.mean():.1f} target tokens on average, with EOS; "
        f"{max(src.max(), tgt.max())} in the longest sentence",
        details,
    )


def _memory_section(step: LargestStep, model_size: ModelSize) -> Section:
    known = model_size.num_bytes
    rows, src, tgt = step.shape
    details = [("batch", f"{rows} x {src} source and {tgt} target tokens")]
    details += [(name, size(num_bytes)) for name, num_bytes in known.items() if num_bytes]
    return Section(
        "memory",
        f"{size(sum(known.values()))}, and activations, which cannot be measured on this device"
        if step.peak is None
        else f"{size(step.peak)} at the peak of a step on the largest batch",
        details,
    )


def _time_section(
    config: Config, pace: forecast.Pace, run: forecast.Forecast, done: Counters | None, peak: float | None
) -> Section:
    speed = pace.target_tokens_per_epoch / (pace.steps_per_epoch * pace.step_seconds)
    epochs = run.num_steps / pace.steps_per_epoch
    not_compiled = ", not compiled" if config.training.compile else ""
    details = [
        ("step", f"{config.training.num_micro_batches} x {config.training.batch_tokens:,} tokens"),
        ("epoch", f"{counted(round(pace.steps_per_epoch), 'step')}; {epochs:.1f} in all"),
        ("speed", f"{speed:,.0f} target tokens a second, measured{not_compiled}{share_of_peak(speed, peak)}"),
        ("start", tqdm.format_interval(pace.start_seconds)),
        (counted(run.num_validations, "validation"), tqdm.format_interval(run.validating_seconds)),
    ]
    if done:
        details.append(("done", f"{counted(done.step, 'step')}, in {tqdm.format_interval(done.seconds)}"))
    steps = f"{tqdm.format_interval(run.seconds)} for {counted(run.num_steps, 'step')}"
    return Section(
        "time", f"{'' if run.is_certain else 'at least '}{steps}, limited by {run.ended_by}", details
    )
