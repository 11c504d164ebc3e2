"""`mt` translating by torch, in the precision that is its default there."""

from collections.abc import Sequence

import torch
from safetensors.torch import load_file

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.device import PrecisionName, choose_precision, keep_freed_memory
from mt.inference.loaded_model import build_model
from mt.inference.model_translator import ModelTranslator
from mt.search.strategy import Beam
from scripts.benchmark.mt_config import run_config
from scripts.benchmark.session import Channel, Job
from scripts.benchmark.sides.decoding import serve_translations

# How the others rank when nothing is said.
LENGTH_PENALTY = 1.0


class MtTranslating:
    """Its own batches, long sentences first."""

    beam_sizes = (1, 5)
    batchings = ("its own",)

    def __init__(self, job: Job, name: PrecisionName) -> None:
        config = run_config(job.size, max_length=job.workload.description.max_length)
        src, tgt = (Tokenizer.load(job.folder / f"{side}_tokenizer.json") for side in ("src", "tgt"))
        model = build_model(config, src, tgt)
        model.load_weights(load_file(job.folder / "decoding.safetensors"))
        device = torch.device(job.device)
        precision = choose_precision(name, device)
        self._translator = ModelTranslator(config, model.to(device), src, tgt, precision=precision)

    def translate(self, texts: Sequence[str], beam_size: int, batching: str) -> list[str]:
        strategy = Beam(beam_size, LENGTH_PENALTY, "mean") if beam_size > 1 else None
        return self._translator.translate(texts, strategy=strategy)


def run(channel: Channel, job: Job) -> None:
    keep_freed_memory()
    serve_translations(channel, job, MtTranslating(job, "auto"))
