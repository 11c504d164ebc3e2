"""Hugging Face `generate` with the weights that `mt` translates with."""

from collections.abc import Sequence

import tokenizers
import torch
from safetensors.torch import load_file

from scripts.benchmark.session import Channel, Job
from scripts.benchmark.sides.decoding import serve_translations
from scripts.benchmark.sides.marian import build_marian
from scripts.benchmark.sides.plain_loop import autocast
from scripts.benchmark.workload import EOS_ID, PAD_ID


class MarianGenerating:
    """Sentences sorted by length, so many at a time."""

    beam_sizes = (1, 5)
    batchings = ("64 sentences", "128 sentences", "256 sentences")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._max_length = job.workload.description.max_length
        self._src, self._tgt = (
            tokenizers.Tokenizer.from_file(str(job.folder / f"{side}_tokenizer.json"))
            for side in ("src", "tgt")
        )
        weights = load_file(job.folder / "decoding.safetensors")
        self._model = build_marian(job.size, job.workload.description, weights).train(False)
        # The model's own `to` has a decorator that hides its type.
        torch.nn.Module.to(self._model, job.device)

    @torch.inference_mode()
    def translate(self, texts: Sequence[str], beam_size: int, batching: str) -> list[str]:
        sources = [[*encoding.ids, EOS_ID] for encoding in self._src.encode_batch(list(texts))]
        order = sorted(range(len(texts)), key=lambda place: -len(sources[place]))
        width = int(batching.split()[0])
        lines = [""] * len(texts)
        for start in range(0, len(order), width):
            places = order[start : start + width]
            longest = len(sources[places[0]])
            rows = [sources[place] + [PAD_ID] * (longest - len(sources[place])) for place in places]
            src = torch.tensor(rows, device=self._job.device)
            with autocast(self._job):
                found = self._model.generate(
                    input_ids=src,
                    attention_mask=(src != PAD_ID).long(),
                    num_beams=beam_size,
                    do_sample=False,
                    max_new_tokens=self._max_length - 1,
                )
            # The row begins with BOS, and after EOS there is only PAD.
            decoded = self._tgt.decode_batch([row[1:] for row in found.tolist()], skip_special_tokens=True)
            for place, line in zip(places, decoded, strict=True):
                lines[place] = line
        return lines


def run(channel: Channel, job: Job) -> None:
    serve_translations(channel, job, MarianGenerating(job))
