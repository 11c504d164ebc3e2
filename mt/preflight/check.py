"""`mt check --config`: find out before training what a run will be like; only the cache is written."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.data import OWN
from mt.data.batches.batch import Batch
from mt.data.corpus import Corpus, evenly_spaced, load_corpus
from mt.data.corpus_report import cleaning_table
from mt.data.prepare import Writing, check_same_corpus, load_tokenizers, missing_sides, with_alignment
from mt.data.suspicions import corpus_warnings, text_it_lacks
from mt.device import keeping_threads
from mt.display import counted, size
from mt.inference.writer import open_writer
from mt.preflight.plan import Plan, plan_run
from mt.preflight.rule import words_suffice
from mt.preflight.text import (
    MOST_DROPPED,
    ExaminedCorpus,
    Numbers,
    Unknown,
    bleu_is_always_0,
    encode,
    evenly_spaced_pairs,
    examine,
    lengths,
    num_running_words,
    shown_directions,
    unknown_words,
    warn_of_held_out_pairs,
)
from mt.preflight.trial import FIXED_SECONDS, ModelSize, Sample, Trial
from mt.run_directory import RunDirectory, as_run
from mt.training.counters import Counters
from mt.training.peak import share_of_peak
from mt.training.resume import find_resume_point
from mt.training.run import settle
from mt.training.schedule import has_ended, learning_rate
from mt.training.step import explain_out_of_memory

NUM_SAMPLES = 3
# How many lines of a side show how long the rest takes to write.
LINES_WRITTEN = 100
# Above these shares of words and of the time, there is a warning.
MOST_UNKNOWN, MOST_VALIDATING = 0.1, 1 / 3
# The share of the peak learning rate below which a cosine counts as finished.
HARDLY_ANY = 0.01


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
    point = find_resume_point(run, config, dry_run=True)
    if point and (reason := point.finished):
        has_no_rate = has_ended(point.checkpoint.step, config.schedule)
        limit = "that limit and schedule.total_steps in a new run" if has_no_rate else "that limit"
        return Conclusion(f"This run is finished ({reason}): to train longer, raise {limit}.")
    done = point.values.counters if point else None
    del point  # It has all weights.
    with keeping_threads():
        missing = missing_sides(config, run, open_writer)
        for writing in missing:
            show(_writing_section(writing))
    corpus = load_corpus(config.data, config.cleaning, written=None if missing else run.written_dir)
    if done:
        check_same_corpus(run, corpus)
    show(_corpus_section(corpus))
    text = examine(corpus, config, load_tokenizers(run) if done else None)
    unknown = unknown_words(text)
    show(_vocabulary_section(text, unknown))
    pairs, dropped = encode(config, text)
    src_lengths, tgt_lengths = lengths(text)
    show(_length_section(text, src_lengths, tgt_lengths, dropped))
    pairs = with_alignment(pairs, text.tokenizers, config)
    sample = Sample(config, text, pairs, FIXED_SECONDS + time.perf_counter() - started)
    with explain_out_of_memory():
        trial = Trial(sample)
        parts = [(name, f"{number:,}") for name, number in trial.size.parts.items()]
        show(Section("model", counted(trial.size.num_parameters, "parameter"), parts))
        show(_memory_section(trial.size, *trial.take_largest_step()))
        plan = plan_run(config, trial.pace(trial.time_steps()))
    show(_time_section(plan, done, trial.peak_rate))
    if config.training.stages:
        show(_stages_section(config))
    folder = next(folder for folder in (run.path.absolute(), *run.path.absolute().parents) if folder.exists())
    one, free = trial.size.saved_bytes, shutil.disk_usage(folder).free
    # The ones that are kept, the best, and the one that is being saved, less those that exist.
    needed = max(1, config.checkpoint.keep + 2 - len(store.names())) * one
    number = f"{plan.num_checkpoints:,}, and each new best; {size(one)} each"
    disk = f"up to {size(needed)} of checkpoints; {size(free)} are free"
    show(Section("disk", disk, [("checkpoints", number)]))
    longest = int(max(src_lengths.max(), tgt_lengths.max()))
    warnings = [
        *corpus_warnings(config, corpus),
        *text_it_lacks(config, corpus),
        *warn_of_held_out_pairs(corpus),
        *warn_of_vocabulary(config, unknown, num_running_words(text.train) * text.scale),
        *warn_of_text(config, text, dropped["too long"] / len(text.train), longest),
        *warn_of_schedule(plan),
        *warn_of_validation(plan),
        *warn_of_disk(needed, free, str(run.path)),
    ]
    verdict = f"This run can continue from step {done.step:,}." if done else "This run can begin."
    return Conclusion(verdict, warnings)


def _writing_section(writing: Writing) -> Section:
    """What the rest of a side will cost, by writing some lines of it."""
    texts = [writing.texts[row] for row in evenly_spaced(len(writing.texts), LINES_WRITTEN)]
    writing.writer.translate(texts[:1], 1)
    started = time.perf_counter()
    translations = writing.writer.translate(texts, 1)
    seconds = (time.perf_counter() - started) / len(texts)
    by = f"{writing.where} by {writing.writer.record['runs']}"
    left = tqdm.format_interval(seconds * len(writing.texts))
    details = [*zip(texts[:NUM_SAMPLES], map(str, translations), strict=False)]
    return Section("writing", f"{left} for {counted(len(writing.texts), 'line')}, {by}", details)


def _corpus_section(corpus: Corpus) -> Section:
    splits = corpus.report.splits
    details = [(str(name), f"{split.where_from}, {', '.join(split.parts)}") for name, split in splits.items()]
    if len(corpus.shares) > 1:
        details += shown_directions(corpus)
    details += [("cleaning", line) for line in cleaning_table(splits["train"], {}).splitlines()]
    num_dropped = sum(splits["train"].dropped.values())
    return Section(
        "corpus",
        f"{counted(len(corpus.train), 'training pair')} and {num_dropped:,} dropped, "
        f"{len(corpus.validation):,} validation, {len(corpus.test):,} test",
        # Otherwise it is a warning.
        details if corpus.report.has_leaked else [*details, ("leaks", corpus.report.leak_sentence)],
    )


def _vocabulary_section(text: ExaminedCorpus, unknown: Mapping[str, Unknown]) -> Section:
    sizes = " and ".join(f"{tokenizer.size:,} {name}" for _, name, tokenizer in text.sides)
    details = [
        (where, f"{words.num_unknown:,} of {words.num_words:,} words unknown")
        for where, words in unknown.items()
    ]
    for pair in evenly_spaced_pairs(text.evaluation["validation"], NUM_SAMPLES):
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


def _length_section(text: ExaminedCorpus, src: Numbers, tgt: Numbers, dropped: Mapping[str, int]) -> Section:
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


def _memory_section(model_size: ModelSize, largest: Batch, peak: int | None) -> Section:
    known, tgt = model_size.num_bytes, largest.labels.size(1)
    rows, src = largest.src_ids.shape
    details = [("batch", f"{rows} x {src} source and {tgt} target tokens")]
    details += [(name, size(num_bytes)) for name, num_bytes in known.items() if num_bytes]
    summary = f"{size(sum(known.values()))}, and activations, which cannot be measured on this device"
    if peak is not None:
        summary = f"{size(peak)} at the peak of a step on the largest batch"
    return Section("memory", summary, details)


def _time_section(plan: Plan, done: Counters | None, peak: float | None) -> Section:
    pace, training = plan.pace, plan.config.training
    speed = pace.target_tokens_per_epoch / (pace.steps_per_epoch * pace.step_seconds)
    not_compiled = ", not compiled" if training.compile else ""
    details = [
        ("step", f"{training.num_micro_batches} x {training.batch_tokens:,} tokens"),
        ("epoch", f"{counted(round(pace.steps_per_epoch), 'step')}; {plan.num_passes:.1f} in all"),
        ("speed", f"{speed:,.0f} target tokens a second, measured{not_compiled}{share_of_peak(speed, peak)}"),
        ("start", tqdm.format_interval(pace.start_seconds)),
        (counted(plan.num_validations, "validation"), tqdm.format_interval(plan.validating_seconds)),
    ]
    if done:
        details.append(("done", f"{counted(done.step, 'step')}, in {tqdm.format_interval(done.seconds)}"))
    steps = f"{tqdm.format_interval(plan.seconds)} for {counted(plan.num_steps, 'step')}"
    at_least = "" if plan.is_certain else "at least "
    return Section("time", f"{at_least}{steps}, limited by {plan.ended_by}", details)


def _stages_section(config: Config) -> Section:
    """What is trained on when."""
    stages = config.training.stages
    usual = {OWN: 1.0} | {name: source.weight for name, source in config.data.sources.items()}
    details, parts = [], []
    for name, stage in stages.items():
        weights = (usual | stage.weights).items()
        details.append((name, ", ".join(f"{source} {weight:g}" for source, weight in weights)))
        parts.append(f"{name} for {counted(stage.steps, 'step')}")
    return Section("stages", ", ".join(parts), details)


def warn_of_vocabulary(config: Config, unknown: Mapping[str, Unknown], num_words: float) -> Iterator[str]:
    """Words that cannot be read or written."""
    where = max(unknown, key=lambda name: unknown[name].share)
    share = unknown[where].share
    # Where words suffice, `mt init` would choose them as well.
    if share > MOST_UNKNOWN and not words_suffice(num_words, share, is_short=config.copies_words):
        yield (
            f"{share:.1%} of the words in the {where} are unknown. Use subwords (tokenizer.kind: bpe), lower "
            "tokenizer.min_frequency, or raise tokenizer.max_size."
        )


def warn_of_text(config: Config, text: ExaminedCorpus, dropped: float, longest: int) -> Iterator[str]:
    """A metric or a maximum length that does not suit the text; ``dropped`` is from 0 to 1."""
    if config.validation.metric == "bleu" and bleu_is_always_0(text.evaluation["validation"]):
        yield (
            "BLEU is 0 for any translation of the validation split, because no target has four words. Set "
            "validation.metric=chrf, so that the best checkpoint can be found."
        )
    if dropped > MOST_DROPPED:
        yield (
            f"data.max_length ({config.data.max_length}) drops {dropped:.1%} of the training pairs; the "
            f"longest sentence has {counted(longest, 'token')}. Raise it."
        )


def warn_of_schedule(run: Plan) -> Iterator[str]:
    """A learning rate that never reaches its peak, or reaches its end too late or too early."""
    schedule = run.config.schedule
    if run.is_certain and schedule.warmup_steps > run.num_steps * run.slack:
        yield (
            f"the warm-up (schedule.warmup_steps {schedule.warmup_steps:,}) is not over when the run ends at "
            f"step {run.num_steps:,}. Lower it, or raise {run.ended_by}."
        )
    if schedule.kind != "cosine" or not schedule.fixed_steps:
        return
    total, end = schedule.fixed_steps, run.num_steps
    left = learning_rate(end, schedule, d_model=run.config.model.d_model) / schedule.learning_rate
    if end > total * run.slack:
        about = "about" if run.is_certain else "at least"
        yield (
            f"the cosine schedule reaches zero at schedule.total_steps ({total:,}), but the run continues to "
            f"{about} step {end:,} ({run.ended_by}) without learning more. Raise the one or lower the other."
        )
    elif run.is_certain and total > end * run.slack and left > HARDLY_ANY:
        yield (
            f"the run ends at about step {end:,} ({run.ended_by}), before the cosine schedule reaches zero "
            f"at schedule.total_steps ({total:,}): the learning rate is still at {left:.0%} of its peak. "
            "Raise the one or lower the other."
        )


def warn_of_validation(run: Plan) -> Iterator[str]:
    """Validations that are too few to be useful, or take too much time."""
    every, share = run.config.validation.every_steps, run.validating_seconds / run.seconds
    if every > run.num_steps and run.config.validation.every_epochs is None:
        yield (
            f"validation.every_steps ({every:,}) is more than the run's {counted(run.num_steps, 'step')}: "
            "the only validation is at the end. Lower it."
        )
    elif run.num_validations > 1 and share > MOST_VALIDATING:
        yield (
            f"{share:.0%} of the run's time goes into {counted(run.num_validations, 'validation')}. Raise "
            "validation.every_steps, or validate on fewer pairs."
        )


def warn_of_disk(needed: int, free: int, path: str) -> Iterator[str]:
    """Checkpoints that will not fit on the disk."""
    if needed > free:
        yield (
            f"the checkpoints to come take up to {size(needed)}, but only {size(free)} are free where {path} "
            "will be. Free some space, or lower checkpoint.keep."
        )
