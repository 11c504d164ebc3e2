"""A run that ends within a budget: some steps are timed, and the number of steps is fixed before the run."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from mt.config.config import Config
from mt.data.batches.alignment import align
from mt.data.batches.dataset import encode_pairs
from mt.data.cache import MANY_PAIRS
from mt.data.corpus import Corpus
from mt.preflight import rule
from mt.preflight.forecast import MOST_DROPPED, Forecast, Pace, forecast
from mt.preflight.rule import Budget
from mt.preflight.text import PAIRS_ENCODED, lengths, look_at
from mt.preflight.trial import FIXED_SECONDS, Sample, Speed, Trial, usable_memory
from mt.training.step import explain_out_of_memory

LOG = logging.getLogger(__name__)

# A run is never proposed with fewer steps, which would learn nothing.
FEWEST_STEPS = 20
# Validations, with a checkpoint each, take at most this share of the time, if there is more than one.
VALIDATION_SHARE, MOST_VALIDATIONS = 0.05, 12
NICE_MINUTES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240)


@dataclass(frozen=True)
class Plan:
    """A run that fits into its budget."""

    config: Config
    pace: Pace
    run: Forecast
    note: str
    """Why it is shorter than its budget, or nothing."""

    @property
    def num_passes(self) -> float:
        """Passes over the corpus."""
        return self.run.num_steps / self.pace.steps_per_epoch


def take_sample(corpus: Corpus, config: Config, load_seconds: float) -> Sample:
    """Tokenize the corpus, and choose `data.max_length` so that all but one in a thousand pairs fit."""
    if len(corpus.train) > MANY_PAIRS:  # It is cached now.
        load_seconds = 0.0
    started = time.perf_counter()
    text = look_at(corpus, config, most=PAIRS_ENCODED)
    longest = np.maximum(*lengths(text))
    # "lower", so that a small corpus may lose its longest pair, but no more than `mt check` accepts.
    fits_most = int(np.quantile(longest, 0.999, method="lower"))
    if np.mean(longest > fits_most) > MOST_DROPPED:
        fits_most = int(longest.max())
    max_length = max(32, 16 * math.ceil(fits_most / 16))
    encoding = time.perf_counter()
    pairs, _ = encode_pairs(text.train, *text.tokenizers, max_length=max_length, shares=text.shares)
    encode_seconds = (time.perf_counter() - encoding) * text.scale
    aligning = time.perf_counter()
    places = align(pairs) if config.training.guided_alignment else None
    align_seconds = (time.perf_counter() - aligning) * text.scale
    start_seconds = FIXED_SECONDS + load_seconds + encoding - started + encode_seconds + align_seconds
    return Sample(update(config, data={"max_length": max_length}), text, pairs, start_seconds, places)


def measure(sample: Sample, speed: Speed | None = None) -> tuple[Speed, Pace]:
    """Time some steps of a run, unless its speed is known, and compute the pace of the whole run."""
    with explain_out_of_memory():
        trial = Trial(sample)
        if speed is None:
            LOG.info("timing steps of the proposed run")
            speed = trial.time_steps()
        return speed, trial.pace(speed)


def fill_device(sample: Sample, device: torch.device) -> Sample:
    """On CUDA, the sample with the largest batches that fit into memory and make training clearly faster."""
    if device.type != "cuda":
        return sample
    free = usable_memory(device)

    def time_steps(sample: Sample) -> tuple[float, bool]:
        """Seconds for a target token, and whether there is memory for twice the batch."""
        with explain_out_of_memory():
            trial = Trial(sample)
            peak, seconds = trial.take_largest_step().peak or 0, trial.time_steps().token_seconds
        size = f"{sample.config.training.batch_tokens:,}"
        LOG.info("batches of %s tokens: %s target tokens/s", size, f"{1 / seconds:,.0f}")
        return seconds, 2 * peak <= free

    return with_largest_batches(sample, time_steps)


def with_largest_batches(sample: Sample, time_steps: Callable[[Sample], tuple[float, bool]]) -> Sample:
    """Double the batch as long as ``time_steps`` says that it fits and that tokens take clearly less time."""
    seconds, fits = time_steps(sample)
    while fits and 2 * sample.config.training.batch_tokens <= rule.largest_batch(sample.corpus_tokens):
        larger = replace(sample, config=update(sample.config, **rule.twice_the_batch(sample.config)))
        before, (seconds, fits) = seconds, time_steps(larger)
        if before < rule.LEAST_GAIN * seconds:
            break
        sample = larger
    return sample


def make_budget(minutes: float | None, rate: float, corpus_tokens: float) -> Budget:
    """A budget of this time, or of one that suits the corpus; ``rate`` is target tokens per second."""
    if minutes is None:
        needed = rule.sensible_passes(corpus_tokens) * corpus_tokens / rate / 60
        minutes = next((nice for nice in NICE_MINUTES if nice >= needed), 60 * math.ceil(needed / 60))
    return Budget(minutes, 60 * minutes * rate)


def with_settings(sample: Sample, budget: Budget) -> Sample:
    """The sample with the options of a run of this budget."""
    corpus_tokens = sample.corpus_tokens
    enough = replace(budget, target_tokens=min(budget.target_tokens, rule.MOST_PASSES * corpus_tokens))
    num_entries, longest = sample.text.tokenizers[1].size, sample.config.data.max_length
    options = rule.choose(enough, corpus_tokens, num_entries, longest)
    return replace(sample, config=update(sample.config, **options))


def cost_of(sample: Sample) -> float:
    """Roughly how many times as long as the usual model a run takes for a target token."""
    num_entries, r_drop = sample.text.tokenizers[1].size, sample.config.training.r_drop
    return rule.relative_cost(sample.config.model, num_entries) * (rule.R_DROP_COST if r_drop else 1.0)


def fit(config: Config, minutes: float, pace: Pace) -> Plan:
    """Fix the number of steps of a run with this pace, from its start to its end."""
    num_steps, num_validations = num_steps_within(60 * minutes - pace.start_seconds, pace)
    most_steps, note = math.ceil(rule.MOST_PASSES * pace.steps_per_epoch), ""
    if num_steps < FEWEST_STEPS:
        num_steps, num_validations = FEWEST_STEPS, 1
        least = (pace.start_seconds + pace.pause_seconds + FEWEST_STEPS * pace.step_seconds) / 60
        note = (
            f"{minutes:g} minutes are too few: on this machine, starting, {FEWEST_STEPS} steps and a "
            f"validation take about {math.ceil(10 * least) / 10:g} minutes, and so short a run learns "
            "next to nothing. Give it more --minutes."
        )
        LOG.warning("%s", note)
    elif num_steps > most_steps:
        num_steps = most_steps
        note = (
            f"The run ends after {rule.MOST_PASSES:,} passes over the corpus, before the budget is used up: "
            "more passes over the same sentences would not help. Add more sentences."
        )
    every = math.ceil(num_steps / num_validations)
    config = update(
        config,
        schedule={"kind": "cosine", "total_steps": num_steps, "warmup_steps": rule.warmup_steps(num_steps)},
        training={"max_steps": num_steps, "ema_decay": rule.ema_decay(num_steps)},
        validation={"every_steps": every},
        checkpoint={"every_steps": every},
    )
    return Plan(config, pace, forecast(config, pace), note)


def num_steps_within(seconds: float, pace: Pace) -> tuple[int, int]:
    """The steps of training, and the validations, that fit into ``seconds``; at least one of each."""
    num_pauses = VALIDATION_SHARE * seconds / max(pace.pause_seconds, 1e-9)
    num_validations = int(min(MOST_VALIDATIONS, max(1.0, num_pauses)))
    left = seconds - num_validations * pace.pause_seconds
    return max(1, math.floor(left / pace.step_seconds)), num_validations


def update(config: Config, **sections: dict[str, Any]) -> Config:
    """A copy of the config with these options, each checked as if it were read from a file."""
    values = config.model_dump()
    for section, options in sections.items():
        values[section] |= options
    return Config.model_validate(values)
