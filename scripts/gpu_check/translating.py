"""Translate and evaluate on the device, and compare logits, translations and scores with those of the CPU."""

import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from mt.config.load import load_config
from mt.data.batches.batch import Batch, collate
from mt.data.corpus import load_corpus
from mt.device import SearchPrecision, choose_precision, usable_precisions
from mt.evaluation.scores import score_translations
from mt.inference.loaded_model import load_model
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam, Strategy
from scripts.gpu_check.job import REPOSITORY, Job, head, row

NUM_SENTENCES = {"cuda": 500, "cpu": 20}
LEAST_SAME = {"float32": 0.99, "bf16": 0.6, "fp16": 0.85}
"""The share of lines that must be translated as on the CPU in float32."""
MOST_LOST = {"float32": 0.2, "bf16": 1.0, "fp16": 0.5}
"""Points of BLEU, likewise."""
LEAST_AGREEING = {"float32": 0.9999, "bf16": 0.97, "fp16": 0.99}
"""The share of positions at which the likeliest token is that of the CPU in float32."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def main() -> int:
    job = Job.given()
    run = RunDirectory(job.unbroken_run)
    config = load_config(run.config_file)
    test = load_corpus(config.data, config.cleaning).test[: NUM_SENTENCES[job.device]]
    device = torch.device(job.device)
    precisions: list[SearchPrecision] = ["float32"]
    if device.type == "cuda":
        precisions = usable_precisions(device)
    if device.type == "cpu":
        print(
            "bf16 and fp16 need a GPU, as does a comparison with the CPU: here it is compared with itself.\n"
        )
    are_good = [
        *_compare_logits(run, device, precisions, list(test["src"]), list(test["tgt"])),
        *_compare_translations(run, device, precisions, list(test["src"]), list(test["tgt"])),
        _evaluate(job),
    ]
    return 0 if all(are_good) else 1


def _compare_logits(
    run: RunDirectory, device: torch.device, precisions: Sequence[str], sources: list[str], targets: list[str]
) -> list[bool]:
    """Teacher-forced logits of the model that is trained, in mixed precision as in training."""
    loaded = load_model(run, "latest")
    sides = (loaded.src_tokenizer.encode_batch(sources), loaded.tgt_tokenizer.encode_batch(targets))
    batch = collate(*sides)
    model = loaded.model.eval()
    is_real = batch.labels != 0
    expected = _logits(model, batch, nullcontext())[is_real]
    model.to(device)
    print("Teacher-forced logits beside those of the CPU in float32:\n")
    head("precision", "largest difference", "mean difference", "same likeliest token", "outcome")
    outcomes = []
    for precision in precisions:
        context: AbstractContextManager[Any] = nullcontext()
        if precision in DTYPES:
            context = torch.autocast(device.type, dtype=DTYPES[precision])
        found = _logits(model, batch.to(device), context)[is_real]
        agreeing = float((found.argmax(-1) == expected.argmax(-1)).double().mean())
        apart = (found - expected).abs()
        outcomes.append(agreeing >= LEAST_AGREEING[precision])
        row(
            precision,
            f"{float(apart.max()):.1e}",
            f"{float(apart.mean()):.1e}",
            f"{agreeing:.2%}",
            _outcome(outcomes[-1]),
        )
    print()
    return outcomes


@torch.inference_mode()
def _logits(model: torch.nn.Module, batch: Batch, context: AbstractContextManager[Any]) -> Tensor:
    with context:
        logits: Tensor = model(batch.src_ids, batch.src_mask, batch.tgt_ids, batch.tgt_mask)
    return logits.float().cpu()


def _compare_translations(
    run: RunDirectory,
    device: torch.device,
    precisions: Sequence[SearchPrecision],
    sources: list[str],
    references: list[str],
) -> list[bool]:
    print(f"Translations of {len(sources)} test sentences beside those of the CPU in float32:\n")
    head("device", "precision", "search", "sentences/s", "same lines", "BLEU", "outcome")
    strategies: dict[str, Strategy] = {"greedy": None, "beam of 5": Beam(5)}
    expected: dict[str, tuple[list[str], float]] = {}
    outcomes = []
    cases: list[tuple[torch.device, SearchPrecision]] = [(torch.device("cpu"), "float32")]
    cases += [(device, precision) for precision in precisions]
    for number, (where, precision) in enumerate(cases):
        translator = ModelTranslator.from_run(run, checkpoint="latest", device=where, precision=precision)
        for search, strategy in strategies.items():
            translator.translate(sources[:50], strategy=strategy)
            started = time.perf_counter()
            lines = translator.translate(sources, strategy=strategy)
            seconds = time.perf_counter() - started
            bleu = score_translations(lines, references)["bleu"].value
            if number == 0:
                expected[search] = lines, bleu
            expected_lines, expected_bleu = expected[search]
            same = sum(map(str.__eq__, lines, expected_lines)) / len(lines)
            lost = abs(bleu - expected_bleu)
            outcomes.append(same >= LEAST_SAME[precision] and lost <= MOST_LOST[precision])
            speed = f"{len(lines) / seconds:,.0f}"
            row(where.type, precision, search, speed, f"{same:.1%}", f"{bleu:.2f}", _outcome(outcomes[-1]))
    print(f"\n`--precision auto` takes {choose_precision('auto', device)} on this {device.type}.\n")
    return outcomes


def _evaluate(job: Job) -> bool:
    """`mt evaluate` itself, on the device and on the CPU."""
    scores = {}
    for device in ("cpu", job.device):
        command = [sys.executable, "-m", "mt", "evaluate", "--run", str(job.unbroken_run), "--device", device]
        done = subprocess.run(
            [*command, "--scores-only"],
            cwd=REPOSITORY,
            env=job.environment(),
            capture_output=True,
            text=True,
        )
        found = re.search(r"BLEU (\d+\.\d+)", done.stdout)
        if done.returncode or found is None:
            print(f"`mt evaluate --device {device}` ended with code {done.returncode}: {done.stderr[-500:]}")
            return False
        scores[device] = float(found[1])
    is_good = abs(scores["cpu"] - scores[job.device]) <= MOST_LOST["float32"]
    found_both = f"{scores['cpu']} on the CPU, {scores[job.device]} on {job.device}"
    print(f"`mt evaluate`: BLEU {found_both}: {_outcome(is_good)}.")
    return is_good


def _outcome(is_good: bool) -> str:
    return "passed" if is_good else "**failed**"


if __name__ == "__main__":
    sys.exit(main())
