"""A trial of a model like that of the run: its parameters, its largest step, its pace."""

import math
import time
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch

from mt import display, system
from mt.config.config import Config
from mt.data.batches.alignment import Places
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.pairs import EncodedPairs
from mt.data.batches.stream import StepBatches, training_batches
from mt.device import Precision, choose_device, settle_threads_and_memory
from mt.errors import RunError
from mt.inference.loaded_model import build_model
from mt.preflight.forecast import Pace
from mt.preflight.text import Text
from mt.training.freeze import freeze
from mt.training.optimizers import count_moments
from mt.training.peak import peak_rate
from mt.training.train_state import new_train_state
from mt.training.validation import validation_loss
from mt.transformer.transformer import Transformer

FLOAT_BYTES = 4
# Importing torch and the libraries, and building the model.
FIXED_SECONDS = 6.0
# The first steps are slow, because the libraries prepare for new batch sizes.
UNCOUNTED_STEPS, MOST_STEPS, TIMED_SECONDS = 2, 60, 6.0
# A validation, which translates, took as long as this many forward passes over its sentences, and so did
# converting the best checkpoint at the end, in which up to so many sentences are translated by two engines.
VALIDATION_PASSES, CONVERSION_PASSES, MOST_VERIFIED = 2.7, 3.5, 1000
# How fast a checkpoint is saved, roughly: a checksum, and writing it to a disk.
SAVED_BYTES_PER_SECOND = 300e6


class Speed(NamedTuple):
    """How fast a model is on this machine."""

    token_seconds: float
    """The time of a training step for each of its target tokens."""
    forward_seconds: float
    """The time of a forward pass for each of its target tokens."""

    def at_cost(self, cost: float) -> "Speed":
        """The speed of a model for which everything takes ``cost`` times as long."""
        return Speed(cost * self.token_seconds, cost * self.forward_seconds)


@dataclass(frozen=True)
class ModelSize:
    """What training keeps for a model in float32: parameters, gradients, optimizer state, moving average."""

    parts: dict[str, int]
    """Parameters by module; shared or tied ones count once, in their first module."""
    num_bytes: dict[str, int]
    """The size of weights, gradients, moments and average."""

    @classmethod
    def of(cls, model: Transformer, config: Config) -> Self:
        """What training keeps for ``model``."""
        parts = Counter[str]()
        for name, parameter in model.named_parameters():
            parts[name.split(".")[0]] += parameter.numel()
        weights, moments = parts.total(), count_moments(model, config.training)
        average = 0 if config.training.ema_decay is None else weights
        numbers = {"weights": weights, "gradients": weights, "moments": moments, "average": average}
        return cls(dict(parts), {name: FLOAT_BYTES * number for name, number in numbers.items()})

    @property
    def num_parameters(self) -> int:
        """The parameters of all parts."""
        return sum(self.parts.values())

    @property
    def saved_bytes(self) -> int:
        """The size of a checkpoint, except for names and the record, which are small."""
        return sum(self.num_bytes.values()) - self.num_bytes["gradients"]

    def check_fits(self, device: torch.device) -> None:
        """Check that the model can be trained if its batches are small enough."""
        needed, free = sum(self.num_bytes.values()), usable_memory(device)
        if needed > free:
            kept = " and ".join(name for name, size in self.num_bytes.items() if size and name != "weights")
            raise RunError(
                f"the model's {self.num_parameters:,} parameters with their {kept} take "
                f"{display.size(needed)}, but only {display.size(free)} of memory can be used. Lower "
                "model.d_model, model.d_ff or tokenizer.max_size."
            )


class LargestStep(NamedTuple):
    """A training step on the largest batch."""

    shape: tuple[int, int, int]
    """The number of pairs, and the source and target tokens per row."""
    peak: int | None
    """The most bytes of memory that were used; None if unknown."""


@dataclass(frozen=True)
class Sample:
    """A part of a corpus as a run with this config will see it."""

    config: Config
    text: Text
    pairs: EncodedPairs
    start_seconds: float
    """The time of a run before its first step and after its last."""
    places: Places | None = None
    """The source position of each target token; None without guided alignment."""

    @property
    def corpus_tokens(self) -> float:
        """Target tokens of one pass over the whole corpus."""
        shares = self.pairs.shares
        weights = np.repeat([share.weight for share in shares], [share.num_pairs for share in shares])
        lengths = self.pairs.tgt.lengths
        return float(lengths @ weights if shares else lengths.sum(dtype="int64")) * self.text.scale


class Trial:
    """A newly initialised model and the batches of a run; the model is thrown away afterwards."""

    def __init__(self, sample: Sample) -> None:
        """Build the model and the batches."""
        config, text = sample.config, sample.text
        device = choose_device(config.training.device)
        # As in a run.
        settle_threads_and_memory()
        torch.manual_seed(config.training.seed)
        model = build_model(config, *text.tokenizers)
        freeze(model, config.training.freeze)
        self.size = ModelSize.of(model, config)
        self.size.check_fits(device)
        precision = Precision(config.training.precision, device, tf32=config.training.tf32)
        self.batches = training_batches(config, sample.pairs, text.tokenizers, sample.places)
        self._train_state = new_train_state(model.to(device), config, precision)
        self.peak_rate = peak_rate(self._train_state.objective, device)
        self._sample, self._device = sample, device

    def take_largest_step(self) -> LargestStep:
        """Train on the largest batch of the first epoch."""
        batch = self.batches.largest_batch(0)
        self._train_state.finish(self._train_state.launch(StepBatches.of(batch)))
        shape = len(batch.labels), batch.src_ids.size(1), batch.labels.size(1)
        return LargestStep(shape, peak_memory(self._device))

    def time_steps(self) -> Speed:
        """Take the first steps of the run for some seconds, and then forward passes of a batch."""
        state, position, num_steps, num_tokens = self._train_state, (0, 0), 0, 0
        started = time.perf_counter()
        while num_steps <= UNCOUNTED_STEPS or (
            num_steps < MOST_STEPS and time.perf_counter() - started < TIMED_SECONDS
        ):
            if num_steps == UNCOUNTED_STEPS:
                started, num_tokens = time.perf_counter(), 0
            num_steps += 1
            batches = self.batches.take(position)
            state.finish(state.launch(batches))
            position, num_tokens = batches.next_position, num_tokens + batches.num_target_tokens
        return Speed((time.perf_counter() - started) / num_tokens, self._time_forward_pass())

    def _time_forward_pass(self) -> float:
        """Seconds of a forward pass for each of its target tokens."""
        state, batches = self._train_state, self.batches.take((0, 0)).micro_batches
        state.objective.eval()
        for _ in range(2):
            started = time.perf_counter()
            loss = validation_loss(state.objective, batches, state.precision)
        if not math.isfinite(loss):
            raise RunError(
                "the loss is NaN or infinite after the first steps. Try a lower schedule.learning_rate, or "
                "more schedule.warmup_steps."
            )
        return (time.perf_counter() - started) / sum(batch.num_target_tokens for batch in batches)

    def pace(self, speed: Speed) -> Pace:
        """What the run does, and how long each part of that takes at this speed."""
        text = self._sample.text
        self.batches.epoch(0)
        started = time.perf_counter()
        num_steps, num_tokens = self.batches.num_steps(1), self.batches.num_target_tokens(1)
        epoch_seconds = time.perf_counter() - started
        pairs, _ = encode_pairs(text.evaluation["validation"], *text.tokenizers, max_length=None)
        tokens = pairs.tgt.lengths
        validated = float(tokens.sum()) * text.validation_scale
        verified = float(tokens[:MOST_VERIFIED].sum())
        return Pace(
            num_steps * text.scale,
            num_tokens * text.scale,
            (num_tokens * speed.token_seconds + epoch_seconds) / num_steps,
            VALIDATION_PASSES * validated * speed.forward_seconds,
            self.size.saved_bytes / SAVED_BYTES_PER_SECOND,
            self._sample.start_seconds + CONVERSION_PASSES * verified * speed.forward_seconds,
            self.size.num_parameters,
        )


def usable_memory(device: torch.device) -> int:
    """Free bytes on a CUDA device, or all that this process may use on the CPU, whose memory MPS shares."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else system.usable_memory()


def peak_memory(device: torch.device) -> int | None:
    """The most bytes that this process has used, on CUDA those of its tensors; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return system.peak_memory() if device.type == "cpu" else None
