"""What `scripts/bench` calls: train side by side with other programs, print a report and write it."""

import argparse
import datetime
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import torch

from mt.device import usable_precisions
from scripts.benchmark import machine
from scripts.benchmark.prepare import make_workload, write_first_weights
from scripts.benchmark.process import REPOSITORY, SideError, Worker
from scripts.benchmark.session import Job, JobPrecision
from scripts.benchmark.sizes import SIZES

NAMES = {
    "mt_train": "**mt**",
    "torch_loop": "plain `torch.nn.Transformer` loop",
    "marian": "Hugging Face Marian",
    "eole": "eole",
    "joeynmt": "JoeyNMT",
    "tutorial": "the tutorials' loop",
}
SAME_BATCHES = ("mt_train", "torch_loop", "marian")
"""Sides that train on the very same batches and begin with the same weights."""
PYTHONS = dict.fromkeys(NAMES, sys.executable) | {
    side: str(REPOSITORY / ".bench" / side / "bin" / "python") for side in ("eole", "joeynmt")
}
PACKAGES = ("torch", "tokenizers", "transformers", "eole", "joeynmt")
METHOD = """\
The programs take turns in rounds, each in its own process, which waits while the others work. Ratios are of
the same round; the table shows their median, with the least and the most. Target tokens are real ones, with
EOS and without padding.

The same mathematics in mt, the plain loop and Marian: the same batches in the same order, the same first
weights (see the loss of the first batch), post-norm, sinusoidal positions, ReLU, dropout 0.1 on the
embeddings and after each sub-layer and nowhere else, output weights tied to the target embedding, label
smoothing 0.1, gradient clipped to norm 1, Adam. eole and JoeyNMT are run by their own training code with
their own batches of as many tokens: eole is pre-norm and also has dropout inside the feed-forward network;
JoeyNMT is post-norm and has it there and on the attention weights as well. The tutorials' loop is taken
from them: 8 sentences padded to 350 tokens, dropout everywhere, output not tied."""


@dataclass
class Result:
    """What a side did in all rounds, or why it could not."""

    first_loss: float | None = None
    tokens_per_second: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    failure: str | None = None


def main() -> int:
    options = _arguments()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stolen = machine.StolenTime()
    _say("reading the corpus and training the subword vocabularies")
    workload = make_workload(
        folder,
        data=str(Path(options.data).resolve()) if Path(options.data).exists() else options.data,
        src=options.src,
        tgt=options.tgt,
        num_pairs=2_000 if options.quick else 29_000,
        batch_tokens=1_000 if options.quick else 25_000 if options.cuda else 4_096,
    )
    sizes = options.sizes or (["tiny"] if options.quick else ["base"] if options.cuda else ["small", "base"])
    tables = []
    for precision in _precisions(options):
        for size in sizes:
            job = Job(folder, SIZES[size], "cuda" if options.cuda else "cpu", precision)
            write_first_weights(job)
            _say(f"training {size} in {precision}")
            tables.append(table(job, _measure(job, options)))
    where = torch.cuda.get_device_name() if options.cuda else machine.processor()
    versions = {line for python in PYTHONS.values() for line in machine.versions(python, PACKAGES)}
    heading = (
        f"Measured on {datetime.date.today()} on {where}, {options.threads} thread(s), "
        f"{', '.join(sorted(versions))}. {stolen}\n\n"
        f"Workload: {workload.corpus}, {workload.num_pairs:,} pairs, byte-level BPE with "
        f"{workload.src_vocabulary_size:,} and {workload.tgt_vocabulary_size:,} entries, at most "
        f"{workload.batch_tokens:,} tokens a batch."
    )
    report = "\n\n".join([heading, METHOD, *tables])
    print(report)
    if not options.quick:
        folder.with_suffix(".md").write_text(f"{report}\n", encoding="utf-8")
        _say(f"written to {folder}.md")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    add = parser.add_argument
    add("--data", default="builtin:primer", help="a corpus as data.path takes it (default: %(default)s)")
    add("--src", default="en", help="the language translated from (default: %(default)s)")
    add("--tgt", default="de", help="the language translated to (default: %(default)s)")
    add("--quick", action="store_true", help="a tiny model for a minute, to see that everything works")
    add("--cuda", action="store_true", help="train the base model in bf16 on CUDA")
    add("--threads", type=int, default=machine.num_cores(), help="threads of each side (default: all cores)")
    add("--sizes", nargs="+", choices=SIZES, help="models to train (default: small base)")
    add("--sides", nargs="+", choices=NAMES, default=list(NAMES), help="train these only, besides mt")
    add("--folder", type=Path, default=REPOSITORY / "runs" / "bench", help="for files, logs and the report")
    return parser.parse_args()


def _precisions(options: argparse.Namespace) -> list[JobPrecision]:
    """Mixed precision only where it pays."""
    if options.cuda:
        return ["bf16"]
    return ["float32", "bf16"] if "bf16" in usable_precisions(torch.device("cpu")) else ["float32"]


def _measure(job: Job, options: argparse.Namespace) -> dict[str, Result]:
    """Let the sides take turns, so that a slow minute is slow for all, another one first in each round."""
    sides = ["mt_train", *(side for side in options.sides if side != "mt_train")]
    if job.size.name == "base":
        # A step of either takes as long as a round of the others.
        sides = [side for side in sides if side not in ("joeynmt", "tutorial")]
    if job.precision == "bf16" and job.device == "cpu":
        # Those that compute the same are enough to see what it brings.
        sides = [side for side in sides if side in SAME_BATCHES]
    workers: dict[str, Worker] = {}
    results = {side: Result() for side in sides}

    def attempt(side: str, **command: float) -> None:
        try:
            if side not in workers:
                workers[side] = Worker(side, job, threads=options.threads, python=PYTHONS[side])
                results[side].first_loss = workers[side].facts.get("first_loss")
            answer = workers[side].ask(**command)
        except (SideError, OSError) as error:
            results[side].failure = str(error)
            return
        results[side].tokens_per_second.append(answer["tgt_tokens"] / answer["seconds"])
        results[side].peak_mb = answer["peak_mb"]
        _say(f"  {side}: {results[side].tokens_per_second[-1]:,.0f} tokens/s")

    try:
        for side in sides:
            # The first steps are slower than those after them and not counted.
            attempt(side, steps=2)
            results[side].tokens_per_second.clear()
        for number in range(2 if options.quick else 4):
            first = number % len(sides)
            for side in sides[first:] + sides[:first]:
                if results[side].failure is None and side in SAME_BATCHES:
                    attempt(side, steps=2 if job.size.name == "base" and job.device == "cpu" else 5)
                elif results[side].failure is None:
                    attempt(side, seconds=1 if options.quick else 8)
    finally:
        for worker in workers.values():
            worker.close()
    return results


def table(job: Job, results: dict[str, Result]) -> str:
    """How fast each side does the job."""
    size = job.size
    reference = results["mt_train"]
    if reference.failure is not None:
        raise SystemExit(f"mt itself failed: {reference.failure}")
    lines = [
        f"### Training, {size.name}, {job.precision}: d_model {size.d_model}, {size.num_heads} heads, "
        f"d_ff {size.d_ff}, {size.num_layers}+{size.num_layers} layers",
        "",
        "| | target tokens/s | mt is faster by (least to most) | peak MB | first batch's loss, no dropout |",
        "|---|---|---|---|---|",
    ]
    for side, result in results.items():
        if result.failure is not None:
            lines.append(f"| {NAMES[side]} | left out: {result.failure} | | | |")
            continue
        ratios = [a / b for a, b in zip(reference.tokens_per_second, result.tokens_per_second, strict=True)]
        loss = "" if result.first_loss is None else f"{result.first_loss:.5f}"
        lines.append(
            f"| {NAMES[side]} | {median(result.tokens_per_second):,.0f} | {median(ratios):.2f} x "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {result.peak_mb:,.0f} | {loss} |"
        )
    return "\n".join(lines)


def _say(what: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
