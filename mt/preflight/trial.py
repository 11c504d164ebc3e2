"""A trial of a model like that of the run: its parameters, its largest step, its speed."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import datasets
import numpy as np
import torch

from mt import display
from mt.config.config import Config
from mt.data.batches.batch import collate, pad
from mt.data.batches.dataset import EncodedPairs
from mt.data.batches.sampler import Indices
from mt.data.batches.stream import BatchStream
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.device import (
    Precision,
    fix_num_threads,
    forget_peak,
    free_memory,
    is_out_of_memory,
    keep_freed_memory,
    peak_memory,
    taken_memory,
)
from mt.errors import TrainingError
from mt.inference.loaded_model import build_model
from mt.preflight.forecast import Pace
from mt.preflight.text import Text
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis, NotFiniteError, length_limit
from mt.search.request import SearchRequest
from mt.special_tokens import EOS_ID
from mt.training.counters import Counters
from mt.training.optimizers import count_moments
from mt.training.step import StepResult
from mt.training.train_state import new_train_state
from mt.training.validation import validate
from mt.transformer.packed_transformer import PackedTransformer
from mt.transformer.transformer import Transformer

FLOAT_BYTES = 4
# If steps are not equally fast, this many times as many are timed.
MOST_EFFORT = 3
# Training steps are compared in quarters, because single steps differ merely by their sentences.
NUM_PARTS = 4
STEADY = 1.2
PARTS = {
    "src_embedding": "embeddings",
    "tgt_embedding": "embeddings",
    "encoder": "encoder",
    "decoder": "decoder",
    "output": "output",
}


@dataclass(frozen=True)
class ModelSize:
    """How many float32 numbers training keeps for a model."""

    parts: dict[str, int]
    """Parameters by part; shared or tied ones count once, in their first part."""
    num_moments: int
    """The state of the optimizers."""
    num_averages: int
    """The moving average of the weights; 0 without one."""

    @property
    def num_parameters(self) -> int:
        """The parameters of all parts."""
        return sum(self.parts.values())

    @property
    def saved_bytes(self) -> int:
        """The size of a checkpoint, except for names and the record, which are small."""
        return FLOAT_BYTES * (self.num_parameters + self.num_moments + self.num_averages)


@dataclass(frozen=True)
class LargestStep:
    """One training step on the largest batches."""

    shapes: list[tuple[int, int, int]]
    """For each batch, the number of pairs, and the source and target tokens per row."""
    result: StepResult
    seconds: float
    activations: int | None
    """Bytes at the peak, without weights, gradients and moments; None if unknown."""
    peak: int | None
    """Bytes at the peak in total; None if unknown."""


@dataclass(frozen=True)
class Speed:
    """Some training steps on ordinary batches, timed."""

    step_target_tokens: Sequence[int]
    """The target tokens of each step, without padding."""
    step_seconds: Sequence[float]
    """The time of each step."""
    processor_seconds: float | None
    """How much of that time the training thread ran on a processor; None if it waits for a GPU."""

    @property
    def num_steps(self) -> int:
        """How many steps were timed."""
        return len(self.step_seconds)

    @property
    def seconds(self) -> float:
        """The time of all of them together."""
        return sum(self.step_seconds)

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second, without padding."""
        return sum(self.step_target_tokens) / self.seconds

    @property
    def range(self) -> tuple[float, float]:
        """Tokens per second in the slowest and the fastest quarter of consecutive steps."""
        tokens, seconds = (
            [float(part.sum()) for part in np.array_split(each, min(NUM_PARTS, self.num_steps))]
            for each in (np.array(self.step_target_tokens), np.array(self.step_seconds))
        )
        speeds = [part / time for part, time in zip(tokens, seconds, strict=True)]
        return min(speeds), max(speeds)

    @property
    def is_steady(self) -> bool:
        """Whether no quarter of the steps is much slower than another."""
        slowest, fastest = self.range
        return self.num_steps >= NUM_PARTS and fastest <= STEADY * slowest

    @property
    def processor_share(self) -> float:
        """The share of the time, above 0 and at most 1, in which the training thread ran on a processor."""
        return min(1.0, self.processor_seconds / self.seconds) if self.processor_seconds else 1.0


def measure_size(config: Config, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> ModelSize:
    """The size of the model that the config describes. Takes no memory."""
    with torch.device("meta"):
        model = build_model(config, src_tokenizer, tgt_tokenizer)
    parts = Counter(dict.fromkeys(PARTS.values(), 0))
    for name, parameter in model.named_parameters():
        parts[PARTS[name.split(".")[0]]] += parameter.numel()
    num_averages = 0 if config.training.ema_decay is None else parts.total()
    return ModelSize(dict(parts), count_moments(model, config.training), num_averages)


def refuse_too_large(size: ModelSize, device: torch.device) -> None:
    """Refuse a model that cannot be trained, whatever the size of its batches."""
    needed, free = size.saved_bytes + FLOAT_BYTES * size.num_parameters, free_memory(device)
    if free is not None and needed > free:
        kept = "gradients, moments and moving average" if size.num_averages else "gradients and moments"
        raise TrainingError(
            f"the model's {size.num_parameters:,} parameters with their {kept} take "
            f"{display.size(needed)}, but only {display.size(free)} of memory are free. Lower model.d_model, "
            "model.d_ff or tokenizer.max_size."
        )


def largest_batches(pairs: EncodedPairs, batches: Sequence[Indices]) -> list[Indices]:
    """The batch with the most positions, including padding, and the one with the longest sentence."""

    def longest(batch: Indices) -> int:
        return int(max(pairs.src.lengths[batch].max(), pairs.tgt.lengths[batch].max()))

    widest, longest_of_all = max(batches, key=pairs.num_positions), max(batches, key=longest)
    return [widest] if longest(widest) == longest(longest_of_all) else [widest, longest_of_all]


class Trial:
    """A newly initialised model and its optimizer, which are thrown away afterwards."""

    def __init__(self, config: Config, model: Transformer, precision: Precision) -> None:
        # As in a run.
        fix_num_threads()
        keep_freed_memory()
        self._train_state = new_train_state(model, config, precision, Counters())
        self._config = config
        self.model = model
        self._device = model.output.weight.device

    def take_largest_step(self, stream: BatchStream, largest: Sequence[Indices]) -> LargestStep:
        """Train on these batches of the first epoch as the micro-batches of one step."""
        # A first step on a single pair allocates what persists: gradients, moments, library buffers.
        generator = np.random.default_rng(self._config.training.seed)
        self._train_state.step([stream.batch_of(largest[0][:1], 0, generator)])
        batches = [stream.batch_of(indices, 0, generator) for indices in largest]
        can_tell = forget_peak(self._device)
        before = taken_memory(self._device)
        started = time.perf_counter()
        result = self._train_state.step(batches)
        seconds = time.perf_counter() - started
        peak = peak_memory(self._device) if can_tell else None
        activations = max(0, peak - before) if peak is not None and before is not None else None
        shapes = [(len(batch.labels), batch.src_ids.size(1), batch.labels.size(1)) for batch in batches]
        return LargestStep(shapes, result, seconds, activations, peak)

    def measure_speed(self, stream: BatchStream, *, max_steps: int, max_seconds: float) -> Speed:
        """Time the first steps of the run, after some warm-up steps that are not counted.

        The first steps are slower, because the libraries prepare for each new batch size.

        Args:
            stream: The run's batches.
            max_steps: Steps to time if they are about equally fast, or up to three times as many if not;
                half as many run as a warm-up.
            max_seconds: Likewise, the time of these steps.
        """
        epoch = batch = num_untimed = 0
        started = time.perf_counter()
        while num_untimed < max(1, max_steps // 2):
            _, epoch, batch = self._take(stream, epoch, batch)
            num_untimed += 1
            if time.perf_counter() - started >= max_seconds / 2:
                break
        num_target_tokens: list[int] = []
        processor_started = time.thread_time()
        times = [time.perf_counter()]
        while True:
            result, epoch, batch = self._take(stream, epoch, batch)
            num_target_tokens.append(result.num_target_tokens)
            times.append(time.perf_counter())
            on_processor = time.thread_time() - processor_started if self._device.type == "cpu" else None
            speed = Speed(num_target_tokens, np.diff(times).tolist(), on_processor)
            effort = max(speed.num_steps / max_steps, speed.seconds / max_seconds)
            if effort >= MOST_EFFORT or (effort >= 1 and speed.is_steady):
                return speed

    def write_longest(self, pairs: EncodedPairs, batch: Indices) -> tuple[int, Hypothesis, float]:
        """Translate the longest source of a batch: its length in tokens, the translation, and the seconds."""
        sentence = max((pairs.src[i] for i in batch), key=len)
        length = len(sentence) + 1
        model = self._packed()
        started = time.perf_counter()
        most = length_limit(length, self._config.data.max_length, target_ratio=pairs.target_ratio)
        (written,) = self._write(model, [sentence.tolist()], [most])
        return length, written, time.perf_counter() - started

    def measure_validation(self, text: datasets.Dataset, tokenizers: tuple[Tokenizer, Tokenizer]) -> float:
        """Seconds that a validation on ``text`` will take once translations have about the right length.

        It is measured on one batch of medium length, with the lengths of the references as limits. The others
        are expected to take as long for each token. The weights are packed once, whatever their number.
        """
        most = self._config.data.max_length - 1
        src, tgt = (
            [ids[:most] for ids in tokenizer.encode_batch(text[side])]
            for tokenizer, side in zip(tokenizers, ("src", "tgt"), strict=True)
        )
        # Translation sorts by length.
        order = np.argsort([len(ids) for ids in src], kind="stable")
        width = self._config.validation.batch_sentences
        start = max(0, (len(order) - width) // 2)
        middle = order[start : start + width]
        num_tokens = sum(len(ids) + 1 for ids in tgt)
        src, tgt = [src[i] for i in middle], [tgt[i] for i in middle]
        rows = text.select(middle)
        started = time.perf_counter()
        model = self._packed()
        packed = time.perf_counter()
        validate(
            self._train_state.objective,
            [collate(src, tgt)],
            self._train_state.precision,
            translate=lambda _: [
                tokenizers[1].decode(written.ids)
                for written in self._write(model, src, [len(ids) + 1 for ids in tgt])
            ],
            sources=rows["src"],
            references=rows["tgt"],
            tgt_tokenizer=tokenizers[1],
        )
        share = sum(len(ids) + 1 for ids in tgt) / num_tokens
        return packed - started + (time.perf_counter() - packed) / share

    def _take(self, stream: BatchStream, epoch: int, batch: int) -> tuple[StepResult, int, int]:
        micro_batches, epoch, batch = stream.take(epoch, batch)
        return self._train_state.step(micro_batches), epoch, batch

    def _packed(self) -> PackedTransformer:
        """The model as a validation translates with it."""
        return PackedTransformer(self.model, "float32")

    @torch.inference_mode()
    def _write(
        self, model: PackedTransformer, sentences: Sequence[Sequence[int]], limits: Sequence[int]
    ) -> list[Hypothesis]:
        """Search greedily, in two halves if the batch does not fit into memory, as when translating."""
        src_ids = pad(sentences, last=EOS_ID).to(self._device)
        try:
            return greedy_search(model, SearchRequest(src_ids, limits))
        except NotFiniteError as error:
            raise TrainingError(
                "logits are NaN or infinite after the first steps. Try a lower schedule.learning_rate, or "
                "more schedule.warmup_steps."
            ) from error
        except RuntimeError as error:
            if not is_out_of_memory(error) or len(sentences) == 1:
                raise
        half = len(sentences) // 2
        first = self._write(model, sentences[:half], limits[:half])
        return first + self._write(model, sentences[half:], limits[half:])


def measure_pace(
    trial: Trial,
    stream: BatchStream,
    text: Text,
    *,
    max_steps: int,
    max_seconds: float,
    validating: bool = True,
) -> tuple[Speed, Pace]:
    """Time the first steps of the run, a validation, and the beginning of an epoch.

    Args:
        trial: The model to train.
        stream: The batches of the examined part of the corpus.
        text: The examined part, and how large it is.
        max_steps: As for `Trial.measure_speed`.
        max_seconds: Likewise.
        validating: Whether to time a validation; otherwise its time counts as zero.
    """
    speed = trial.measure_speed(stream, max_steps=max_steps, max_seconds=max_seconds)
    validation_seconds = (
        trial.measure_validation(text.evaluation["validation"], text.tokenizers) if validating else 0.0
    )
    started = time.perf_counter()
    stream.epoch(1)
    epoch_seconds = time.perf_counter() - started
    return speed, Pace(
        stream.num_steps(1) * text.scale,
        stream.num_target_tokens(1) * text.scale,
        speed.tokens_per_second,
        epoch_seconds * text.scale,
        validation_seconds * text.validation_scale,
    )
