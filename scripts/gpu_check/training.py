"""Train, kill and resume runs in each precision, and compare their weights with those of unbroken runs.

On a GPU some kernels add in whatever order their threads come, so that two unbroken runs may differ too. That
is why there are two of them: a resumed run may differ from the first by about as much as the second does.

torch.compile chooses kernels by the sizes of the first batch that a process sees, so that a resumed run may
round differently, and such differences grow with every step. Whether it has resumed where it was is seen from
the loss of its first steps.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from mt.checkpoint.store import CheckpointStore
from mt.device import usable_precisions
from mt.training.metrics_file import read_points
from scripts.benchmark import machine
from scripts.gpu_check.job import REPOSITORY, Job, head, row

CONFIG = """\
data: {{path: {data}, src: {src}, tgt: {tgt}, max_length: 64, num_train_pairs: {num_pairs}}}
tokenizer: {{kind: bpe, max_size: {vocabulary}}}
model:
  {{d_model: {width}, d_ff: {inner}, num_heads: 4, num_encoder_layers: {deep}, num_decoder_layers: {deep}}}
schedule: {{learning_rate: 0.001, warmup_steps: 100}}
training:
  {{device: {device}, precision: {precision}, compile: {compile}, batch_tokens: {tokens}, max_steps: {steps}}}
validation: {{every_steps: {steps}, num_samples: 0}}
checkpoint: {{every_steps: {every}, keep: 2}}
"""
SIZES: dict[str, dict[str, int]] = {
    "cuda": {
        "num_pairs": 20_000,
        "vocabulary": 4_000,
        "width": 256,
        "inner": 1024,
        "deep": 3,
        "tokens": 4_096,
        "steps": 400,
        "every": 50,
    },
    "cpu": {
        "num_pairs": 400,
        "vocabulary": 300,
        "width": 32,
        "inner": 64,
        "deep": 1,
        "tokens": 400,
        "steps": 40,
        "every": 4,
    },
}
MOST_TIMES = 10
"""How many times as far as two unbroken runs are apart the resumed run may be from one of them."""
FIRST_LOSSES, MOST_LOSS_APART = 2, 1e-3
"""In a compiled run, so many points of the training curve after resuming may differ by this share of their
loss. On an H100, the losses of bf16 and fp16 were within 2e-4 of those of float32 after 60 steps."""
GPU_GIB_A_RUN = 3


@dataclass(frozen=True)
class Variant:
    """A precision, with or without torch.compile."""

    precision: str
    compile: bool

    @property
    def name(self) -> str:
        return self.precision + ("-compiled" if self.compile else "")


@dataclass(frozen=True)
class Run:
    """A finished run."""

    weights: dict[str, Tensor]
    loss: float
    """The validation loss."""
    losses: dict[int, float]
    """The training loss, by step."""
    resumed_from: int | None
    """The step; None for a run that was never killed."""


def main() -> int:
    job = Job.given()
    head(
        "precision",
        "compile",
        "validation loss",
        "two unbroken runs",
        "killed and resumed",
        "first losses after resuming",
        "outcome",
    )
    variants = list(_variants(job.device))
    with ThreadPoolExecutor(_num_at_once(job.device)) as pool:
        # Those that compile take longest.
        started = [
            (variant, [pool.submit(_train, job, variant, name) for name in ("unbroken", "again", "killed")])
            for variant in sorted(variants, key=lambda each: not each.compile)
        ]
        outcomes = []
        for variant, futures in started:
            try:
                outcomes.append(_compare(variant, *(future.result() for future in futures)))
            except RuntimeError as error:
                row(variant.precision, _yes(variant.compile), "-", "-", "-", "-", f"**failed**: {error}")
                outcomes.append(False)
    if job.device == "cpu":
        row("fp16", "no", "-", "-", "-", "-", "needs a GPU")
        row("each", "yes", "-", "-", "-", "-", "needs a GPU: on a CPU, compiling takes minutes")
    print(
        f"\nEach run had {SIZES[job.device]['steps']} steps. A difference is its norm over all weights, "
        "divided by the norm of the weights. The killed run was ended by SIGKILL after its first checkpoint. "
        "A compiled run may be rounded otherwise once it is resumed; its first losses must be those of the "
        f"unbroken run within {MOST_LOSS_APART:.1%}."
    )
    return 0 if all(outcomes) else 1


def _variants(device: str) -> Iterator[Variant]:
    if device == "cpu":
        yield from (Variant("float32", False), Variant("bf16", False))
        return
    precisions = ["float32", "fp16"]
    if "bf16" in usable_precisions(torch.device(device)):
        precisions.insert(1, "bf16")
    for precision, compiled in product(precisions, (False, True)):
        yield Variant(precision, compiled)


def _num_at_once(device: str) -> int:
    """Runs at the same time: their speed does not matter here."""
    if device == "cpu":
        return 1
    free, _ = torch.cuda.mem_get_info()
    return max(1, min(machine.num_cores() // 2, int(free / 2**30 / GPU_GIB_A_RUN)))


def _train(job: Job, variant: Variant, name: str) -> Run:
    """Train one run to its end; the one called ``killed`` is killed and resumed on the way."""
    folder = job.folder / variant.name
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / f"{name}.yaml"
    values = SIZES[job.device] | {
        "data": json.dumps(job.data),
        "src": job.src,
        "tgt": job.tgt,
        "device": job.device,
        "precision": variant.precision,
        "compile": str(variant.compile).lower(),
    }
    config.write_text(CONFIG.format(**values))
    run = folder / name
    command = [sys.executable, "-m", "mt", "train", "--config", str(config), "--run", str(run)]
    environment = job.environment() | {"OMP_NUM_THREADS": "1"}
    store = CheckpointStore(run / "checkpoints")
    resumed_from = None
    with (folder / f"{name}.log").open("w") as log:
        if name == "killed":
            _kill_after_first_checkpoint(command, run, environment, log.fileno())
            if not (run / "checkpoints" / "latest").exists():
                raise RuntimeError(f"mt train ended before its first checkpoint, see {folder / name}.log")
            resumed_from = store.require("latest").step
        ended = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
    if ended.returncode:
        raise RuntimeError(f"mt train ended with code {ended.returncode}, see {folder / name}.log")
    latest = store.require("latest")
    losses = {
        point.step: point.figures["loss"]
        for point in read_points(run / "metrics.jsonl")
        if point.kind == "train"
    }
    return Run(store.load_model(latest), float(latest.metrics["loss"]), losses, resumed_from)


def _kill_after_first_checkpoint(
    command: list[str], run: Path, environment: dict[str, str], log: int
) -> None:
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
    try:
        while process.poll() is None and not (run / "checkpoints" / "latest").exists():
            time.sleep(0.005)
    finally:
        process.kill()
        process.wait()


def _compare(variant: Variant, unbroken: Run, again: Run, killed: Run) -> bool:
    apart, resumed = _difference(unbroken, again), _difference(unbroken, killed)
    losses_apart = _first_losses_apart(unbroken, killed)
    is_exact = resumed <= MOST_TIMES * apart
    is_resumed = is_exact or (variant.compile and losses_apart <= MOST_LOSS_APART)
    is_good = is_resumed and math.isfinite(unbroken.loss)
    row(
        variant.precision,
        _yes(variant.compile),
        f"{unbroken.loss:.4f}",
        _described(apart),
        _described(resumed),
        f"differ by {losses_apart:.1e}" if losses_apart else "the same",
        "passed" if is_good else "**failed**",
    )
    return is_good


def _difference(one: Run, other: Run) -> float:
    """Norm of the difference of all weights, divided by the norm of the weights."""
    squares = [
        ((weight.double() - other.weights[name].double()).square().sum(), weight.double().square().sum())
        for name, weight in one.weights.items()
    ]
    of_difference, of_weights = (float(sum(parts)) for parts in zip(*squares, strict=True))
    return float((of_difference / of_weights) ** 0.5)


def _first_losses_apart(unbroken: Run, killed: Run) -> float:
    """How far the first training losses after resuming are from those of the unbroken run, as a share."""
    assert killed.resumed_from is not None
    later = sorted(step for step in unbroken.losses if step > killed.resumed_from)
    if not later:
        raise RuntimeError("the run had ended before it could be killed")
    return max(abs(killed.losses[step] / unbroken.losses[step] - 1) for step in later[:FIRST_LOSSES])


def _described(difference: float) -> str:
    return f"differ by {difference:.1e}" if difference else "the same bits"


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


if __name__ == "__main__":
    sys.exit(main())
