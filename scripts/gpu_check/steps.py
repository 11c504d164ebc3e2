"""Time training steps of three models, eager and compiled, beside Hugging Face Marian in the plain loop.

Sentences are random, with lengths and frequencies of words as in news, so that no corpus is needed and a
vocabulary may have any size. All sides train on the same batches.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.profiler import ProfilerActivity, profile

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.training import TrainingConfig
from mt.data.batches.pairs import EncodedPairs, EncodedSentences
from mt.data.batches.stream import BatchStream
from mt.device import Precision, choose_device, fix_threads_and_malloc
from mt.special_tokens import PAD_ID
from mt.training.compiling import compile_objective
from mt.training.peak import peak_rate
from mt.training.train_state import TrainState, new_train_state
from mt.transformer.build import build_transformer
from scripts.benchmark.sides.mt_train import model_config
from scripts.benchmark.sizes import SIZES, Size
from scripts.gpu_check.job import Job, head, row

MODELS = {"cuda": (("base", 37_000), ("big", 37_000), ("base", 8_000)), "cpu": (("tiny", 300),)}
"""Names of sizes and numbers of words, the most important first."""
COMPILERS = {"cuda": "inductor", "cpu": "aot_eager"}
"""The second only to try the check itself."""
SIDES = ("mt", "mt, compiled", "mt, compiled, twice the batch", "Marian")
BATCH_TOKENS = {"cuda": 25_000, "cpu": 500}
NUM_PAIRS = {"cuda": 600_000, "cpu": 600}
"""Few pairs would leave gaps: sentences of one batch are as long as each other only in a large corpus."""
MAX_LENGTH = 256
WARM_UP, ROUNDS, STEPS, PROFILED = 8, 3, 10, 5
KINDS = {
    "attention": ("fmha", "flash", "attention"),
    "products": ("gemm", "nvjet", "cutlass", "cublas", "splitk"),
    "optimizer": ("multi_tensor", "adam", "lpnorm"),
    "copies": ("memcpy", "memset", "copy_kernel", "catarray"),
}
"""Parts of the names of kernels, by kind. All others are norms, residuals, embeddings and losses."""
OTHERS = "others"


@dataclass(frozen=True)
class Model:
    """A model and what it is trained on."""

    size: Size
    vocabulary: int
    pairs: EncodedPairs
    batch_tokens: int
    device: torch.device

    def stream(self, times: int = 1) -> BatchStream:
        """Its batches, or batches that are so many times as large."""
        return BatchStream(
            pairs=self.pairs, batch_tokens=times * self.batch_tokens, num_micro_batches=1, seed=1
        )


def main() -> int:
    job = Job.given()
    device = choose_device(job.device)
    fix_threads_and_malloc()
    kinds = (f"{kind}, ms" for kind in (*KINDS, OTHERS))
    head("model, words", "side", "ms a step", "target tokens/s", "of the peak", *kinds, "launches a step",
         "first step, s", "GiB")  # fmt: skip
    is_good = True
    for name, vocabulary in MODELS[job.device]:
        pairs = random_pairs(NUM_PAIRS[job.device], vocabulary)
        model = Model(SIZES[name], vocabulary, pairs, BATCH_TOKENS[job.device], device)
        state = new_state(model.size, vocabulary, device)
        for side in SIDES:
            what = f"{name}, {vocabulary:,}"
            try:
                measure(what, side, steps_of(side, model, state), peak_rate(state.objective, device), device)
            # Whatever it is, the other sides are to be measured.
            except Exception as error:
                row(what, side, f"**failed**: {type(error).__name__}: {error}")
                is_good = False
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
    return 0 if is_good else 1


@cache
def random_pairs(num_pairs: int, vocabulary: int) -> EncodedPairs:
    """Random sentence pairs whose lengths and words are distributed as in news."""
    generator = np.random.default_rng(1)
    src_lengths = np.clip(generator.lognormal(3.1, 0.6, num_pairs), 1, 100).astype(np.int64)
    tgt_lengths = np.clip(src_lengths * generator.normal(1.0, 0.15, num_pairs), 1, 110).astype(np.int64)
    words = np.arange(4, vocabulary)
    frequencies = 1 / words

    def side(lengths: npt.NDArray[np.int64]) -> EncodedSentences:
        ids = generator.choice(words, int(lengths.sum()), p=frequencies / frequencies.sum())
        return EncodedSentences(ids.astype("int32"), lengths.astype("int32") + 1)

    return EncodedPairs(side(src_lengths), side(tgt_lengths))


def new_state(size: Size, vocabulary: int, device: torch.device) -> TrainState:
    """A model with first weights and its optimizer, as `mt train` makes them."""
    config = Config(
        data=DataConfig(path="random", src="src", tgt="tgt"),
        model=model_config(size),
        training=TrainingConfig(max_steps=1, precision="auto", clip_norm=1.0),
    )
    torch.manual_seed(1)
    model = build_transformer(
        config.model, src_vocab_size=vocabulary, tgt_vocab_size=vocabulary, max_length=MAX_LENGTH
    )
    return new_train_state(model.to(device), config, Precision("auto", device))


def steps_of(side: str, model: Model, state: TrainState) -> Iterator[int]:
    """Train for ever; the target tokens of each step. What is compiled once remains so."""
    if side == "Marian":
        return steps_of_marian(model)
    if side == "mt, compiled":
        compile_objective(state.objective, backend=COMPILERS[model.device.type])
    return steps_of_mt(state, model.stream(2 if "twice" in side else 1))


def steps_of_mt(state: TrainState, stream: BatchStream) -> Iterator[int]:
    """Train as `mt.training.loop` does."""
    position = 0, 0
    with stream.collating_ahead(pinned=torch.cuda.is_available()):
        while True:
            # The state may have trained on larger batches before, of which an epoch has fewer.
            batches = stream.take(position)
            state.step(batches)
            position = batches.next_position
            yield batches.num_target_tokens


def steps_of_marian(model: Model) -> Iterator[int]:
    """Train Hugging Face's Marian in the plain loop of the benchmark."""
    # Here, because importing them takes seconds.
    from scripts.benchmark.sides.marian import build_marian
    from scripts.benchmark.sides.plain_loop import mean_loss, plain_adam
    from scripts.benchmark.workload import Description

    vocabulary, device, stream = model.vocabulary, model.device, model.stream()
    weights = new_state(model.size, vocabulary, torch.device("cpu")).objective.model.weights()
    description = Description("random", vocabulary, vocabulary, 0, 1, MAX_LENGTH, 0)
    marian: Any = build_marian(model.size, description, weights).to(device).train()
    optimizer = plain_adam(marian, device.type)
    position = (0, 0)
    while True:
        [batch], _, position = stream.take(position)
        on_device: Any = batch.to(device)
        optimizer.zero_grad()
        with Precision("auto", device).autocast():
            logits = marian(
                input_ids=on_device.src_ids,
                attention_mask=on_device.src_ids != PAD_ID,
                decoder_input_ids=on_device.tgt_ids,
                use_cache=False,
            ).logits
            loss = mean_loss(logits, on_device)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(marian.parameters(), 1.0)
        optimizer.step()
        yield batch.num_target_tokens


def measure(what: str, side: str, steps: Iterator[int], peak: float | None, device: torch.device) -> None:
    """Print the row of one side, and to stderr the kernels that take longest."""
    _, first_seconds = timed(steps, 1, device)
    timed(steps, WARM_UP, device)
    rounds = [timed(steps, STEPS, device) for _ in range(ROUNDS)]
    rates = [tokens / seconds for tokens, seconds in rounds]
    kernels = kernels_of(steps, PROFILED) if device.type == "cuda" else []
    by_kind = dict.fromkeys((*KINDS, OTHERS), 0.0)
    for kernel in kernels:
        by_kind[kernel.kind] += kernel.milliseconds
    row(
        what,
        side,
        f"{1000 * sum(seconds for _, seconds in rounds) / ROUNDS / STEPS:.1f}",
        f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
        f"{median(rates) / peak:.1%}" if peak else "-",
        *(f"{milliseconds:.1f}" for milliseconds in by_kind.values()),
        f"{sum(kernel.calls for kernel in kernels):.0f}",
        f"{first_seconds:.0f}",
        f"{torch.cuda.max_memory_allocated() / 2**30:.1f}" if device.type == "cuda" else "-",
    )
    print(f"{what}, {side}", file=sys.stderr)
    for kernel in sorted(kernels, key=lambda kernel: -kernel.milliseconds)[:12]:
        print(
            f"  {kernel.milliseconds:.2f} ms, {kernel.calls:.0f} calls: {kernel.name[:90]}", file=sys.stderr
        )


def timed(steps: Iterator[int], number: int, device: torch.device) -> tuple[int, float]:
    """The target tokens of so many steps, and their seconds."""
    started = time.perf_counter()
    tokens = sum(next(steps) for _ in range(number))
    if device.type == "cuda":
        torch.cuda.synchronize()
    return tokens, time.perf_counter() - started


@dataclass(frozen=True)
class Kernel:
    """What a kernel did in one step."""

    name: str
    milliseconds: float
    calls: float

    @property
    def kind(self) -> str:
        """One of `KINDS`, or `OTHERS`."""
        name = self.name.lower()
        return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), OTHERS)


def kernels_of(steps: Iterator[int], number: int) -> Sequence[Kernel]:
    """All kernels of so many steps, under the profiler."""
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        timed(steps, number, torch.device("cuda"))
    return [
        Kernel(each.key, each.self_device_time_total / 1000 / number, each.count / number)
        for each in recorded.key_averages()
        if each.self_device_time_total
    ]


if __name__ == "__main__":
    sys.exit(main())
