"""Whether the fast path learns what the plain path learns: losses and BLEU of both, and of chance.

python -m scripts.benchmark.curves --data FOLDER [--steps N]

Two trainings of `mt` that differ in what dropout draws, the first once more in bf16 where the CPU is fast
at it, and one of the plain `torch.nn.Transformer` loop with torch's own dropout, loss and Adam; all with the
same first weights, batches and learning rates. The distance of the others from `mt` is to be compared
with the distance of the two trainings of `mt` from each other.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor
from tqdm import tqdm

from mt.config.data import DataConfig
from mt.data.batches.batch import Batch
from mt.data.batches.stream import StepBatches
from mt.data.corpus import load_split
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.device import Precision, multiplies_bf16_fast
from mt.evaluation.scores import score_translations
from mt.inference.model_translator import ModelTranslator
from mt.training.loss import Objective
from mt.training.train_state import TrainState
from mt.transformer.transformer import Transformer
from scripts.benchmark.mt_config import run_config
from scripts.benchmark.session import Job
from scripts.benchmark.sides.mt_train import adam, batch_stream, new_model
from scripts.benchmark.sides.plain_loop import LABEL_SMOOTHING, PaddedBatch, plain_adam, step
from scripts.benchmark.sides.prepare import LEARNING_BATCH_TOKENS, Preparation, learning_rate
from scripts.benchmark.sides.torch_loop import TorchTransformer, state_from_mt
from scripts.benchmark.sizes import SIZES
from scripts.benchmark.workload import Workload

NUM_POINTS = 10
CPU = torch.device("cpu")

Step = Callable[[Batch], float]
"""Trains on a batch; the loss of each of its target tokens."""


def learning_rates() -> Iterator[float]:
    """The learning rates of all steps."""
    return map(learning_rate, itertools.count(1))


def fast_path(model: Transformer, seed: int, precision: Precision) -> Step:
    """What `mt train` does with a batch."""
    train_state = TrainState(
        Objective(model),
        adam(model),
        precision,
        learning_rate,
        label_smoothing=LABEL_SMOOTHING,
        clip_norm=1.0,
    )
    generator = torch.Generator().manual_seed(seed).get_state()

    def take(batch: Batch) -> float:
        nonlocal generator
        # Each training draws from a generator of its own, though they take turns.
        torch.set_rng_state(generator)
        result = train_state.finish(train_state.launch(StepBatches.of(batch)))
        generator = torch.get_rng_state()
        return result.loss

    return take


def plain_path(model: TorchTransformer, seed: int, job: Job) -> Step:
    """The usual step on a batch."""
    optimizer, rates = plain_adam(model.train(), job.device), learning_rates()
    generator = torch.Generator().manual_seed(seed).get_state()

    def take(batch: Batch) -> float:
        nonlocal generator
        torch.set_rng_state(generator)
        for group in optimizer.param_groups:
            group["lr"] = next(rates)
        padded = PaddedBatch(batch.src_ids, batch.tgt_ids, batch.labels, [], [])
        loss = step(model, lambda padded: model(padded.src, padded.tgt), padded, optimizer, job)
        generator = torch.get_rng_state()
        return float(loss)

    return take


def weights_for_mt(model: TorchTransformer, like: Transformer) -> dict[str, Tensor]:
    """The plain weights under the names of `mt`: `state_from_mt` undone, by sending places through it."""
    shapes = like.weights()
    starts = itertools.accumulate((weight.numel() for weight in shapes.values()), initial=0)
    numbers = {
        name: torch.arange(start, start + weight.numel()).view_as(weight)
        for (name, weight), start in zip(shapes.items(), starts, strict=False)
    }
    flat = torch.empty(sum(weight.numel() for weight in shapes.values()))
    state = model.state_dict()
    for name, places in state_from_mt(numbers).items():
        flat[places.flatten()] = state[name].flatten()
    return {name: flat[places] for name, places in numbers.items()}


def train_side_by_side(steps: dict[str, Step], workload: Workload, num_steps: int) -> dict[str, list[float]]:
    """Let all take the same batches; the mean loss of each tenth of the way."""
    stream = batch_stream(workload, batch_tokens=LEARNING_BATCH_TOKENS)
    losses: dict[str, list[float]] = {name: [] for name in steps}
    position = (0, 0)
    for _ in tqdm(range(num_steps), unit=" steps", disable=None):
        [batch], _, position = stream.take(position)
        for name, take in steps.items():
            losses[name].append(take(batch))
    return {
        name: [mean(each[start:end]) for start, end in itertools.pairwise([0, *ends(num_steps)])]
        for name, each in losses.items()
    }


def ends(num_steps: int) -> list[int]:
    """The last step of each tenth of the way."""
    return [num_steps * (point + 1) // NUM_POINTS for point in range(NUM_POINTS)]


def bleu(model: Transformer, job: Job, data: DataConfig) -> float:
    """BLEU of greedy translations of the validation split."""
    src, tgt = (Tokenizer.load(job.folder / f"{side}_tokenizer.json") for side in ("src", "tgt"))
    config = run_config(job.size, max_length=job.workload.description.max_length)
    pairs = load_split(data, "validation")
    found = ModelTranslator(config, model, src, tgt).translate(list(pairs["src"]))
    return score_translations(found, list(pairs["tgt"]))["bleu"].value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--data", required=True, help="a corpus as data.path takes it")
    parser.add_argument("--src", default="en")
    parser.add_argument("--tgt", default="de")
    parser.add_argument(
        "--steps", type=int, default=1_000, help="of about 1,000 tokens (default: %(default)s)"
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/bench"), help="for intermediate files")
    options = parser.parse_args()
    if options.steps < NUM_POINTS:
        parser.error(f"--steps must be at least {NUM_POINTS}")
    options.folder.mkdir(parents=True, exist_ok=True)
    job = Job(options.folder, SIZES["small"], "cpu")
    Preparation(job).make_workload(
        data=options.data, src=options.src, tgt=options.tgt, num_pairs=29_000, batch_tokens=4_096
    )
    workload = job.workload
    first = new_model(job.size, workload.description).weights()
    fast = {"mt, seed 1": (1, Precision("float32", CPU)), "mt, seed 2": (2, Precision("float32", CPU))}
    if multiplies_bf16_fast(CPU):
        fast["mt, seed 1, bf16"] = (1, Precision("bf16", CPU))
    models = {name: new_model(job.size, workload.description) for name in fast}
    plain = TorchTransformer(job.size, workload.description)
    plain.load_state_dict({**state_from_mt(first), "positions": plain.positions})
    steps = {
        **{name: fast_path(models[name], seed, precision) for name, (seed, precision) in fast.items()},
        "plain loop": plain_path(plain, 1, job),
    }
    losses = train_side_by_side(steps, workload, options.steps)
    translating = new_model(job.size, workload.description)
    translating.load_weights(weights_for_mt(plain, translating))
    data = DataConfig(path=options.data, src=options.src, tgt=options.tgt)
    scores = [bleu(model, job, data) for model in (*models.values(), translating)]
    print("| | " + " | ".join(f"to step {end:,}" for end in ends(options.steps)) + " | BLEU |")
    print("|---|" + "---|" * (NUM_POINTS + 1))
    for (name, each), score in zip(losses.items(), scores, strict=True):
        print(f"| {name} | " + " | ".join(f"{loss:.3f}" for loss in each) + f" | {score:.2f} |")


if __name__ == "__main__":
    main()
