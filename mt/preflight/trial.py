"""A trial of a model like that of the run: its parameters, its largest step, its pace."""

import hashlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryFile
from typing import NamedTuple, Self

import numpy as np
import torch
from rich.filesize import decimal

from mt.config.config import Config
from mt.data.batches.alignment import Places
from mt.data.batches.batch import collate
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.pairs import EncodedPairs
from mt.data.batches.sampler import Indices
from mt.data.batches.stream import training_batches
from mt.device import (
    Precision,
    choose_device,
    fix_num_threads,
    keep_freed_memory,
    peak_memory,
    usable_memory,
)
from mt.errors import OverflowedLinesError, TrainingError
from mt.inference.loaded_model import build_model
from mt.inference.model_translator import ModelTranslator
from mt.preflight.forecast import Pace
from mt.preflight.text import Text
from mt.search.strategy import Constraints
from mt.training.attention_images import attention_images
from mt.training.counters import Counters
from mt.training.freeze import freeze
from mt.training.optimizers import count_moments
from mt.training.train_state import new_train_state
from mt.training.validation import validate
from mt.transformer.transformer import Transformer

FLOAT_BYTES = 4
# Importing torch and the libraries, building the model, and converting the best checkpoint at the end.
FIXED_SECONDS = 8.0
TIMED_STEPS, TIMED_SECONDS = 40, 4.0
# A part of a checkpoint that is large enough to time how fast it is saved.
SAVED_PART_BYTES = 2**25


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
        if free is not None and needed > free:
            kept = " and ".join(name for name, size in self.num_bytes.items() if size and name != "weights")
            raise TrainingError(
                f"the model's {self.num_parameters:,} parameters with their {kept} take "
                f"{decimal(needed)}, but only {decimal(free)} of memory are free. Lower "
                "model.d_model, model.d_ff or tokenizer.max_size."
            )


class LargestStep(NamedTuple):
    """A training step on the largest batches."""

    shapes: list[tuple[int, int, int]]
    """For each batch, the number of pairs, and the source and target tokens per row."""
    loss: float
    peak: int | None
    """The most bytes of memory that were used; None if unknown."""


def largest_batches(pairs: EncodedPairs, batches: Sequence[Indices]) -> list[Indices]:
    """The batch with the most positions, with padding, and one with the longest sentence if that has not."""
    longest = np.maximum(pairs.src.lengths, pairs.tgt.lengths)
    widest = max(batches, key=pairs.num_positions)
    tallest = max(batches, key=lambda batch: int(longest[batch].max()))
    return [widest] if longest[widest].max() == longest[tallest].max() else [widest, tallest]


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
        fix_num_threads()
        keep_freed_memory()
        torch.manual_seed(config.training.seed)
        model = build_model(config, *text.tokenizers)
        freeze(model, config.training.freeze)
        self.size = ModelSize.of(model, config)
        self.size.check_fits(device)
        precision = Precision(config.training.precision, device, tf32=config.training.tf32)
        self.batches = training_batches(config, sample.pairs, text.tokenizers, sample.places)
        self._train_state = new_train_state(model.to(device), config, precision, Counters())
        self._sample, self._device = sample, device

    def take_largest_step(self) -> LargestStep:
        """Train on the largest batches of the first epoch as the micro-batches of one step."""
        epoch = self.batches.epoch(0)
        largest = largest_batches(epoch.pairs, list(epoch.batches))
        generator = np.random.default_rng(self._sample.config.training.seed)
        batches = [self.batches.batch_of(indices, 0, generator) for indices in largest]
        result = self._train_state.step(batches)
        shapes = [(len(batch.labels), batch.src_ids.size(1), batch.labels.size(1)) for batch in batches]
        return LargestStep(shapes, result.loss, peak_memory(self._device))

    def time_steps(self, *, max_steps: int, max_seconds: float) -> float:
        """Seconds of a step for each of its target tokens, from the first steps of the run."""
        log_every = self._sample.config.training.log_every_steps
        epoch = batch = 0
        # The first third is not counted, because the libraries prepare for new batch sizes.
        for share in (0.5, 1.0):
            num_tokens = num_steps = 0
            started = time.perf_counter()
            while not num_steps or (
                num_steps < share * max_steps and time.perf_counter() - started < share * max_seconds
            ):
                micro_batches, epoch, batch = self.batches.take(epoch, batch)
                num_steps += 1
                result = self._train_state.step(micro_batches, observe=num_steps % log_every == 0)
                num_tokens += result.num_target_tokens
        return (time.perf_counter() - started) / num_tokens

    def time_validation(self) -> float:
        """Seconds that a validation on the examined part of its split will take, as timed on one batch."""
        config, text = self._sample.config, self._sample.text
        tokenizers, split = text.tokenizers, text.evaluation["validation"]
        sizes = np.array([len(reference) + 1 for reference in split["tgt"]])
        num_rows = config.validation.batch_sentences
        # Batches are of like length; this one has the medium lengths.
        middle = np.argsort(sizes, kind="stable")[max(0, len(sizes) - num_rows) // 2 :][:num_rows]
        rows = split.select(middle)
        pairs, _ = encode_pairs(rows, *tokenizers, max_length=config.data.max_length)
        # A new model would not know where to end.
        length = round(float(pairs.tgt.lengths.mean())) - 1 if len(pairs) else 1
        ratio = self.batches.epoch(0).pairs.target_ratio
        state, objective = self._train_state, self._train_state.objective.eval()
        try:
            with state.evaluation_weights():
                translator = ModelTranslator(config, objective.model, *tokenizers, target_ratio=ratio)
                started = time.perf_counter()
                validate(
                    objective,
                    [collate(pairs.src, pairs.tgt)] if len(pairs) else [],
                    state.precision,
                    translate=partial(
                        translator.translate, max_length=length, constraints=Constraints(min_length=length)
                    ),
                    sources=rows["src"],
                    references=rows["tgt"],
                    tgt_tokenizer=tokenizers[1],
                )
                validated = time.perf_counter()
                attention_images(translator, rows)
        except OverflowedLinesError as error:
            raise TrainingError(
                "logits are NaN or infinite after the first steps. Try a lower schedule.learning_rate, or "
                "more schedule.warmup_steps."
            ) from error
        seconds_once = time.perf_counter() - validated
        return seconds_once + (validated - started) * float(sizes.sum() / sizes[middle].sum())

    def measure_pace(self) -> Pace:
        """Time the first steps of the run, the beginning of an epoch, a validation, and a checkpoint."""
        text = self._sample.text
        token_seconds = self.time_steps(max_steps=TIMED_STEPS, max_seconds=TIMED_SECONDS)
        validation_seconds = self.time_validation() * text.validation_scale
        started = time.perf_counter()
        num_steps, num_tokens = self.batches.num_steps(1), self.batches.num_target_tokens(1)
        epoch_seconds = time.perf_counter() - started
        return Pace(
            num_steps * text.scale,
            num_tokens * text.scale,
            (num_tokens * token_seconds + epoch_seconds) / num_steps,
            validation_seconds,
            time_saving(self.size.saved_bytes),
            self._sample.start_seconds,
            self.size.num_parameters,
        )


def time_saving(num_bytes: int) -> float:
    """Seconds that a checkpoint of this size takes: a checksum, and writing it to disk."""
    part = bytes(min(num_bytes, SAVED_PART_BYTES))
    started = time.perf_counter()
    with TemporaryFile() as file:
        hashlib.sha256(part)
        file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return (time.perf_counter() - started) * num_bytes / len(part)
