"""Compare losses and gradients, eager and compiled, in each precision with those of the CPU in float64."""

import sys

import torch
from torch import Tensor

from mt.config.model import ModelConfig
from mt.data.batches.batch import Batch, collate
from mt.device import Precision, choose_device
from mt.training.compiling import compile_objective
from mt.training.loss import Objective
from mt.transformer.build import build_transformer
from scripts.gpu_check.job import Job, head, row
from scripts.gpu_check.steps import COMPILERS, random_pairs

VOCABULARY = 501
MOST_OFF = {"float32": 1e-4, "bf16": 3e-2, "fp16": 1e-2}
"""By which share of itself a loss, or the norm of a gradient, may be off."""
PRECISIONS = {"cuda": ("float32", "bf16", "fp16"), "cpu": ("float32",)}


def main() -> int:
    job = Job.given()
    device = choose_device(job.device)
    batches = batches_of_all_kinds()
    reference = Precision("float32", torch.device("cpu"))
    exact = [results(new_objective().double(), batch, reference) for batch in batches]
    head("precision", "loss off by", "gradient off by")
    is_good = True
    for name in PRECISIONS[job.device]:
        for is_compiled in (False, True):
            objective = new_objective().to(device)
            if is_compiled:
                torch.compiler.reset()
                compile_objective(objective, backend=COMPILERS[device.type])
                if device.type == "cpu":
                    # Where oneDNN multiplies, each number of rows is a graph of its own.
                    torch._dynamo.config.recompile_limit = 100
            precision = Precision(name, device)  # type: ignore[arg-type]
            losses, gradients = [], []
            for batch, (loss, gradient) in zip(batches, exact, strict=True):
                own_loss, own_gradient = results(objective, batch, precision)
                losses.append(abs(own_loss - loss) / loss)
                gradients.append(float((own_gradient - gradient).norm() / gradient.norm()))
            is_good &= max(*losses, *gradients) < MOST_OFF[name]
            row(f"{name}, compiled" if is_compiled else name, f"{max(losses):.1e}", f"{max(gradients):.1e}")
    return 0 if is_good else 1


def batches_of_all_kinds() -> list[Batch]:
    """Large ones, a few pairs, a single pair, and sources of one length; with and without an alignment."""
    pairs = random_pairs(400, VOCABULARY)
    groups = (range(40), range(40, 43), range(50, 51), range(60, 300))
    return [
        *(collate([pairs.src[i] for i in group], [pairs.tgt[i] for i in group]) for group in groups),
        collate([[5, 6, 7]] * 16, [pairs.tgt[i] for i in range(16)]),
        collate([[5, 6, 7]] * 16, [[7, 8]] * 16, [[1, 0]] * 16),
        collate([[5, 6, 7], [5, 8]] * 16, [[7, 8]] * 32, [[1, 0]] * 32),
    ]


def new_objective() -> Objective:
    """The same small model each time, without dropout."""
    torch.manual_seed(1)
    sizes = ModelConfig(
        d_model=128, num_heads=2, d_ff=256, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0
    )
    model = build_transformer(
        sizes,
        src_vocab_size=VOCABULARY,
        tgt_vocab_size=VOCABULARY,
        max_length=256,
    )
    return Objective(model, guided_alignment=0.05)


def results(objective: Objective, batch: Batch, precision: Precision) -> tuple[float, Tensor]:
    """The loss per token, and the whole gradient on the CPU."""
    objective.zero_grad()
    with precision.autocast():
        loss = objective(batch.to(precision.device), 0.1) / batch.num_target_tokens
    loss.backward()
    gradients = [
        each.grad.flatten().double().cpu() for each in objective.parameters() if each.grad is not None
    ]
    return loss.item(), torch.cat(gradients)


if __name__ == "__main__":
    sys.exit(main())
