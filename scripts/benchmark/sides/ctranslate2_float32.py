"""CTranslate2 in float32 with the weights that `mt` translates with, and one worker that has all threads."""

import os
from collections.abc import Sequence

import ctranslate2
import tokenizers

from scripts.benchmark.session import Channel, Job
from scripts.benchmark.sides.decoding import serve_translations


class CTranslate2Translating:
    """Its own batching, by sentences or by tokens."""

    beam_sizes = (1, 5)
    batchings = (
        "32 sentences",
        "64 sentences",
        "128 sentences",
        "256 sentences",
        "2048 tokens",
        "8192 tokens",
    )

    def __init__(self, job: Job, compute_type: str, *, worker_per_thread: bool = False) -> None:
        self._src, self._tgt = (
            tokenizers.Tokenizer.from_file(str(job.folder / f"{side}_tokenizer.json"))
            for side in ("src", "tgt")
        )
        self._max_length = job.workload.description.max_length
        threads = int(os.environ["OMP_NUM_THREADS"])
        self._translator = ctranslate2.Translator(
            str(job.folder / "ctranslate2"),
            device=job.device,
            compute_type=compute_type,
            # Batches are spread over the workers; one sentence alone is translated by one of them.
            inter_threads=threads if worker_per_thread else 1,
            intra_threads=1 if worker_per_thread else threads,
        )

    def translate(self, texts: Sequence[str], beam_size: int, batching: str) -> list[str]:
        number, unit = batching.split()
        results = self._translator.translate_batch(
            [encoding.tokens for encoding in self._src.encode_batch(list(texts))],
            beam_size=beam_size,
            max_batch_size=int(number),
            batch_type="tokens" if unit == "tokens" else "examples",
            max_decoding_length=self._max_length,
            # Its own default is 1, which forbids the empty translation.
            min_decoding_length=0,
            disable_unk=True,
        )
        ids = [[self._tgt.token_to_id(token) or 0 for token in result.hypotheses[0]] for result in results]
        return self._tgt.decode_batch(ids, skip_special_tokens=True)


def run(channel: Channel, job: Job) -> None:
    compute_type = "bfloat16" if job.device == "cuda" else "float32"
    serve_translations(channel, job, CTranslate2Translating(job, compute_type))
