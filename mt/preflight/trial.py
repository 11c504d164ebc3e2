"""A sample of a corpus, and a trial of a model on it: its parameters, its largest step, its pace."""

import logging
import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch

from mt import display, system
from mt.config.config import Config
from mt.data.batches.batch import Batch
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.pairs import EncodedPairs
from mt.data.batches.stream import StepBatches, training_batches
from mt.data.cache import MANY_PAIRS
from mt.data.corpus import Corpus
from mt.data.prepare import with_alignment
from mt.device import Precision, choose_device, fix_threads_and_malloc
from mt.errors import RunError
from mt.inference.loaded_model import build_model
from mt.preflight import rule
from mt.preflight.text import MOST_DROPPED, PAIRS_ENCODED, ExaminedCorpus, examine, lengths
from mt.training.budget import CONVERSION_PASSES, MOST_VERIFIED, UNTIMED_STEPS, VALIDATION_PASSES, Pace
from mt.training.freeze import freeze
from mt.training.optimizers import count_moments
from mt.training.peak import peak_rate
from mt.training.step import explain_out_of_memory
from mt.training.train_state import new_train_state
from mt.training.validation import validation_loss
from mt.transformer.transformer import Transformer

LOG = logging.getLogger(__name__)

FLOAT_BYTES = 4
# Importing torch and the libraries, and building the model.
FIXED_SECONDS = 6.0
MOST_STEPS, TIMED_SECONDS = 60, 6.0
# How fast a checkpoint is saved, roughly: a checksum, and writing it to a disk.
SAVED_BYTES_PER_SECOND = 300e6


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
        weights = FLOAT_BYTES * parts.total()
        moments = FLOAT_BYTES * count_moments(model, config.training)
        average = 0 if config.training.ema_decay is None else weights
        return cls(parts, {"weights": weights, "gradients": weights, "moments": moments, "average": average})

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


@dataclass(frozen=True)
class Sample:
    """A part of a corpus as a run with this config will see it."""

    config: Config
    text: ExaminedCorpus
    pairs: EncodedPairs
    start_seconds: float
    """The time of a run before its first step and after its last."""

    @property
    def corpus_tokens(self) -> float:
        """Target tokens of one pass over the whole corpus."""
        weights = np.ones(len(self.pairs))
        start = 0
        for share in self.pairs.shares:
            weights[start : start + share.num_pairs] = share.weight
            start += share.num_pairs
        return float(self.pairs.tgt.lengths @ weights) * self.text.scale


class Trial:
    """A newly initialised model and the batches of a run; the model is thrown away afterwards."""

    def __init__(self, sample: Sample) -> None:
        """Build the model and the batches."""
        config, text = sample.config, sample.text
        device = choose_device(config.training.device)
        # As in a run.
        fix_threads_and_malloc()
        torch.manual_seed(config.training.seed)
        model = build_model(config, *text.tokenizers)
        freeze(model, config.training.freeze)
        self.size = ModelSize.of(model, config)
        self.size.check_fits(device)
        precision = Precision(config.training.precision, device, tf32=config.training.tf32)
        self.batches = training_batches(config, sample.pairs, text.tokenizers)
        self._train_state = new_train_state(model.to(device), config, precision)
        self.peak_rate = peak_rate(self._train_state.objective, device)
        self._sample = sample
        self._device = device

    def take_largest_step(self) -> tuple[Batch, int | None]:
        """Train on the largest batch of the first epoch; return it and the peak of memory, if known."""
        batch = self.batches.largest_batch(0)
        self._train_state.finish(self._train_state.launch(StepBatches.of(batch)))
        if self._device.type == "cuda":
            return batch, torch.cuda.max_memory_allocated(self._device)
        return batch, system.peak_memory() if self._device.type == "cpu" else None

    def time_steps(self) -> tuple[float, float]:
        """Seconds of the first steps of the run, and of a forward pass, for each target token."""
        state, position = self._train_state, (0, 0)
        for number in range(MOST_STEPS):
            if number <= UNTIMED_STEPS:
                started, num_tokens = time.perf_counter(), 0
            batches = self.batches.take(position)
            state.finish(state.launch(batches))
            position = batches.next_position
            num_tokens += batches.num_target_tokens
            if number >= UNTIMED_STEPS and time.perf_counter() - started >= TIMED_SECONDS:
                break
        return (time.perf_counter() - started) / num_tokens, self._time_forward_pass()

    def _time_forward_pass(self) -> float:
        """Seconds of a forward pass for each of its target tokens, the fastest of three."""
        state, batches = self._train_state, self.batches.take((0, 0)).micro_batches
        fastest = math.inf
        for _ in range(3):
            started = time.perf_counter()
            loss = validation_loss(state.objective, batches, state.precision)
            fastest = min(fastest, time.perf_counter() - started)
        if not math.isfinite(loss):
            raise RunError(
                "the loss is NaN or infinite after the first steps. Try a lower schedule.learning_rate, or "
                "more schedule.warmup_steps."
            )
        return fastest / sum(batch.num_target_tokens for batch in batches)

    def pace(self, token_seconds: tuple[float, float]) -> Pace:
        """What the run does, and how long each part takes if steps and forward passes take so long."""
        text = self._sample.text
        step_seconds, forward_seconds = token_seconds
        self.batches.epoch(0)
        started = time.perf_counter()
        num_steps, num_tokens = self.batches.num_steps(1), self.batches.num_target_tokens(1)
        epoch_seconds = time.perf_counter() - started
        pairs, _ = encode_pairs(text.evaluation["validation"], text.tokenizers, max_length=None)
        tokens = pairs.tgt.lengths
        validated = float(tokens.sum()) * text.validation_scale
        verified = float(tokens[:MOST_VERIFIED].sum())
        return Pace(
            num_steps * text.scale,
            num_tokens * text.scale,
            (num_tokens * step_seconds + epoch_seconds) / num_steps,
            VALIDATION_PASSES * validated * forward_seconds,
            self.size.saved_bytes / SAVED_BYTES_PER_SECOND,
            self._sample.start_seconds + CONVERSION_PASSES * verified * forward_seconds,
            self.size.num_parameters,
            token_seconds,
        )


def take_sample(corpus: Corpus, config: Config, load_seconds: float) -> Sample:
    """Tokenize the corpus, and choose `data.max_length` so that all but one in a thousand pairs fit."""
    if len(corpus.train) > MANY_PAIRS:  # It is cached now.
        load_seconds = 0.0
    started = time.perf_counter()
    text = examine(corpus, config, most=PAIRS_ENCODED)
    longest = np.maximum(*lengths(text))
    # "lower", so that a small corpus may lose its longest pair, but no more than `mt check` accepts.
    fits_most = int(np.quantile(longest, 0.999, method="lower"))
    if np.mean(longest > fits_most) > MOST_DROPPED:
        fits_most = int(longest.max())
    max_length = max(32, 16 * math.ceil(fits_most / 16))
    encoding = time.perf_counter()
    pairs, _ = encode_pairs(text.train, text.tokenizers, max_length=max_length, shares=text.shares)
    pairs = with_alignment(pairs, text.tokenizers, config)
    encode_seconds = (time.perf_counter() - encoding) * text.scale
    start_seconds = FIXED_SECONDS + load_seconds + encoding - started + encode_seconds
    config = config.with_options(data={"max_length": max_length})
    return Sample(config, text, pairs, start_seconds)


def measure(sample: Sample, token_seconds: tuple[float, float] | None = None) -> Pace:
    """The pace of a run; some of its steps are timed, unless it is known how long they take."""
    with explain_out_of_memory():
        trial = Trial(sample)
        if token_seconds is None:
            LOG.info("timing steps of the proposed run")
            token_seconds = trial.time_steps()
        return trial.pace(token_seconds)


def fill_device(sample: Sample, device: torch.device) -> Sample:
    """On CUDA, double the batch as long as it fits into memory and tokens take clearly less time."""
    if device.type != "cuda":
        return sample
    free = usable_memory(device)
    seconds, peak = try_batch(sample)
    most_tokens = rule.largest_batch(sample.corpus_tokens)
    while 2 * peak <= free and 2 * sample.config.training.batch_tokens <= most_tokens:
        larger = replace(sample, config=sample.config.with_options(**rule.twice_the_batch(sample.config)))
        before, (seconds, peak) = seconds, try_batch(larger)
        if before < rule.LEAST_GAIN * seconds:
            break
        sample = larger
    return sample


def try_batch(sample: Sample) -> tuple[float, int]:
    """Seconds for a target token, and the most memory that was used."""
    with explain_out_of_memory():
        trial = Trial(sample)
        _, peak = trial.take_largest_step()
        seconds, _ = trial.time_steps()
    size = f"{sample.config.training.batch_tokens:,}"
    LOG.info("batches of %s tokens: %s target tokens/s", size, f"{1 / seconds:,.0f}")
    return seconds, peak or 0


def usable_memory(device: torch.device) -> int:
    """Free bytes on a CUDA device, or all that this process may use on the CPU, whose memory MPS shares."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else system.usable_memory()
