"""A run that ends within a budget: real steps are timed, and the number of steps is fixed before the run."""

import logging
import math
import os
from dataclasses import dataclass, replace
from typing import Any

from mt.config.config import Config
from mt.data.batches.alignment import Places
from mt.data.batches.dataset import EncodedPairs
from mt.data.batches.stream import training_batches
from mt.device import Precision, choose_device, multiplies_bf16_fast
from mt.errors import ConfigError
from mt.inference.loaded_model import build_model
from mt.preflight.forecast import Pace, warn_of_other_work
from mt.preflight.rule import (
    MOST_PASSES,
    R_DROP_COST,
    USUAL_BATCH,
    USUAL_MODEL,
    choose,
    ema_decay,
    relative_cost,
    sensible_passes,
    warmup_steps,
)
from mt.preflight.text import Text
from mt.preflight.trial import Trial, measure_pace
from mt.seeding import seed_everything
from mt.training.step import explain_out_of_memory

LOG = logging.getLogger(__name__)

# A few percent are reserved for what cannot be timed beforehand, such as saving checkpoints.
AIM = 0.97
# Importing torch and the libraries, and the first step, which is slower than the others.
IMPORT_SECONDS = 6.0
# A run of fewer steps learns nothing.
FEWEST_STEPS = 20
# Validations take at most this share of the time, if there is more than one.
VALIDATION_SHARE = 0.05
MOST_VALIDATIONS = 12
# How long steps of one kind are timed; three times as long if they vary.
MOST_TIMED_STEPS = 100
MOST_TIMED_SECONDS = 20.0
LEAST_TIMED_SECONDS = 1.5
TIMED_SHARE = 0.01
NICE_MINUTES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240)


@dataclass(frozen=True)
class Budget:
    """What a run may take: minutes from the start of the program to its last step, or target tokens.

    If neither is given, minutes are proposed.
    """

    minutes: float | None = None
    target_tokens: int | None = None


@dataclass(frozen=True)
class Room:
    """What a budget has room for on this machine."""

    minutes: float | None
    """None if the budget is a number of target tokens."""
    target_tokens: float
    """How many target tokens `USUAL_MODEL` can be trained on."""
    precision: str
    """The precision in which it trains fastest."""


@dataclass(frozen=True)
class CorpusSample:
    """The examined part of a corpus as a run will see it."""

    text: Text
    pairs: EncodedPairs
    places: Places | None
    """The source position of each target token; None without guided alignment."""
    start_seconds: float
    """The time that loading, tokenizers, encoding and aligning take before the first step."""

    @property
    def corpus_tokens(self) -> float:
        """Target tokens of one pass over the whole corpus."""
        return float(self.pairs.tgt.lengths.sum(dtype="int64")) * self.text.scale


@dataclass(frozen=True)
class Measured:
    """The pace of some timed steps."""

    pace: Pace
    processor_share: float
    """The fraction of the time in which the training thread ran on a processor."""


@dataclass(frozen=True)
class Plan:
    """A run that fits into its budget."""

    config: Config
    num_passes: float
    """Passes over the corpus."""
    cost_passes: float
    """The passes that would fit into the same time without R-Drop."""
    minutes: float
    """From the start of the program to the last step."""
    target_tokens: float
    notes: list[str]


def look_for_room(budget: Budget, config: Config, sample: CorpusSample) -> Room:
    """Time steps of the usual model, and propose minutes if no budget is given."""
    usual = update(
        config,
        model=USUAL_MODEL.model_dump() | {"share_embeddings": config.tokenizer.shared},
        training={"batch_tokens": max(USUAL_BATCH, config.data.max_length), "muon": True},
    )
    precision, rate = _faster_precision(usual, sample)
    if budget.target_tokens is not None:
        return Room(None, budget.target_tokens, precision)
    minutes = budget.minutes or _sensible_minutes(rate, sample)
    tokens = rate * max(60 * AIM * minutes - sample.start_seconds - IMPORT_SECONDS, 1.0)
    return Room(minutes, tokens, precision)


def fit_into(room: Room, config: Config, sample: CorpusSample) -> Plan:
    """Complete a config whose data and tokenizer are fixed, so that its run ends within the budget.

    The settings are chosen twice: by the pace of the run that was timed for the room, then by their own.
    """
    seconds = LEAST_TIMED_SECONDS
    if room.minutes is not None:
        seconds = min(MOST_TIMED_SECONDS, max(seconds, TIMED_SHARE * 60 * room.minutes))
    chosen = _with_settings(config, room, sample)
    LOG.info("timing steps of the proposed run")
    measured = measure(chosen, sample, max_seconds=seconds, validating=True)
    if room.minutes is not None:
        # The settings were chosen by the pace of another model, tokenizer and batch size.
        again = _with_settings(config, _room_by(measured.pace, room, chosen, sample), sample)
        if again != chosen:
            chosen = again
            LOG.info("timing steps of the run with settings adjusted to its speed")
            measured = measure(chosen, sample, max_seconds=seconds, validating=True)
    notes = [
        f"{warning[0].upper()}{warning[1:]}"
        for warning in warn_of_other_work(os.getloadavg()[0], os.cpu_count() or 1, measured.processor_share)
    ]
    return _fixed(room, chosen, sample, measured.pace, notes)


def measure(
    config: Config, sample: CorpusSample, *, max_seconds: float, validating: bool = False
) -> Measured:
    """Train a new model for some seconds on the first batches of the run, and time its steps.

    Args:
        config: The run.
        sample: Its text.
        max_seconds: How long steps are timed; up to three times as long if they are not equally fast.
        validating: Whether to also time a validation.
    """
    device = choose_device(config.training.device)
    stream = training_batches(config, sample.pairs, sample.text.tokenizers, sample.places)
    seed_everything(config.training.seed)
    with explain_out_of_memory(config):
        model = build_model(config, *sample.text.tokenizers).to(device)
        trial = Trial(config, model, Precision(config.training.precision, device))
        speed, pace = measure_pace(
            trial,
            stream,
            sample.text,
            max_steps=MOST_TIMED_STEPS,
            max_seconds=max_seconds,
            validating=validating,
        )
    return Measured(pace, speed.processor_share)


def num_steps_within(seconds: float, pace: Pace) -> tuple[int, int]:
    """The steps of training, and the validations, that fit into ``seconds``; at least one of each."""
    room = VALIDATION_SHARE * seconds / max(pace.validation_seconds, 1e-9)
    num_validations = int(min(MOST_VALIDATIONS, max(1.0, room)))
    left = seconds - num_validations * pace.validation_seconds
    return max(1, math.floor(left / pace.seconds_per_step)), num_validations


def update(config: Config, **sections: dict[str, Any]) -> Config:
    """A copy of the config with these options, each checked as if it were read from a file."""
    values = config.model_dump()
    for section, options in sections.items():
        values[section] |= options
    return Config.model_validate(values)


def _faster_precision(config: Config, sample: CorpusSample) -> tuple[str, float]:
    """The precision in which the config trains faster here, and its target tokens per second."""
    rates = {}
    # Elsewhere, auto is float32, or fp16 on GPUs that are made for it.
    names = ("auto", "float32") if multiplies_bf16_fast(choose_device(config.training.device)) else ("auto",)
    for name in names:
        LOG.info("timing steps of a small model%s", "" if name == "auto" else f" in {name}")
        in_precision = update(config, training={"precision": name})
        pace = measure(in_precision, sample, max_seconds=LEAST_TIMED_SECONDS).pace
        rates[name] = pace.target_tokens_per_epoch / pace.seconds_per_step / pace.steps_per_epoch
    fastest = max(rates, key=lambda name: rates[name])
    return fastest, rates[fastest]


def _sensible_minutes(rate: float, sample: CorpusSample) -> float:
    """A round number of minutes for the passes that are worth their time."""
    passes = sensible_passes(sample.corpus_tokens)
    minutes = (passes * sample.corpus_tokens / rate + sample.start_seconds + IMPORT_SECONDS) / 60
    return next((nice for nice in NICE_MINUTES if nice >= minutes), 60 * math.ceil(minutes / 60))


def _room_by(pace: Pace, room: Room, config: Config, sample: CorpusSample) -> Room:
    """The room for `USUAL_MODEL` if a config has this pace."""
    assert room.minutes is not None
    seconds = 60 * AIM * room.minutes - sample.start_seconds - IMPORT_SECONDS
    tokens = seconds / pace.seconds_per_step * pace.target_tokens_per_epoch / pace.steps_per_epoch
    tokens *= R_DROP_COST if config.training.r_drop else 1.0
    tokens *= relative_cost(config.model, sample.text.tokenizers[1].size)
    return replace(room, target_tokens=max(tokens, 1.0))


def _with_settings(config: Config, room: Room, sample: CorpusSample) -> Config:
    corpus_tokens = sample.corpus_tokens
    settings = choose(
        min(room.target_tokens, MOST_PASSES * corpus_tokens),
        corpus_tokens,
        sample.text.tokenizers[1].size,
        config.data.max_length,
        in_time=room.minutes is not None,
    )
    model = settings.model.model_dump() | {"share_embeddings": config.tokenizer.shared}
    return update(
        config,
        model=model,
        schedule={"learning_rate": settings.learning_rate},
        training={
            "precision": room.precision,
            "batch_tokens": settings.batch_tokens,
            "r_drop": settings.r_drop,
            "muon": settings.muon,
            "weight_decay": settings.weight_decay,
            # Any value will do for timing; the number of steps decides the final one.
            "ema_decay": ema_decay(FEWEST_STEPS),
        },
    )


def _fixed(room: Room, config: Config, sample: CorpusSample, pace: Pace, notes: list[str]) -> Plan:
    """The plan with its number of steps, once the pace is known."""
    starting = sample.start_seconds + IMPORT_SECONDS
    tokens_per_step = pace.target_tokens_per_epoch / pace.steps_per_epoch
    if room.minutes is not None:
        seconds = 60 * AIM * room.minutes - starting
        num_steps, num_validations = num_steps_within(seconds, pace)
        least = (starting + pace.validation_seconds + FEWEST_STEPS * pace.seconds_per_step) / (60 * AIM)
        if room.minutes < least:
            raise ConfigError(
                f"{room.minutes:g} minutes are not enough on this machine, where loading takes "
                f"{starting:.0f} seconds, a validation {pace.validation_seconds:.0f}, and a training step "
                f"{pace.seconds_per_step:.2f}. Give at least {math.ceil(10 * least) / 10:g} minutes."
            )
    else:
        num_steps = math.floor(room.target_tokens / tokens_per_step)
        if num_steps < FEWEST_STEPS:
            raise ConfigError(
                f"{room.target_tokens:,.0f} target tokens are not enough for {FEWEST_STEPS} steps of about "
                f"{tokens_per_step:.0f} tokens. Give at least {math.ceil(FEWEST_STEPS * tokens_per_step):,}."
            )
        _, num_validations = num_steps_within(num_steps * pace.seconds_per_step, pace)
    most_steps = math.ceil(MOST_PASSES * pace.steps_per_epoch)
    if num_steps > most_steps:
        num_steps = most_steps
        notes = [
            *notes,
            f"The run ends after {MOST_PASSES:,} passes over the corpus, before the budget is used up: more "
            "passes over the same sentences would not help. Add more sentences.",
        ]
    every = math.ceil(num_steps / num_validations)
    config = update(
        config,
        schedule={"kind": "cosine", "total_steps": num_steps, "warmup_steps": warmup_steps(num_steps)},
        training={"max_steps": num_steps, "ema_decay": ema_decay(num_steps)},
        validation={"every_steps": every},
        checkpoint={"every_steps": every},
    )
    took = starting + num_steps * pace.seconds_per_step + num_validations * pace.validation_seconds
    passes = num_steps / pace.steps_per_epoch
    cost = R_DROP_COST if config.training.r_drop else 1.0
    tokens = num_steps * tokens_per_step
    return Plan(config, passes, cost * passes, took / 60, tokens, notes)
