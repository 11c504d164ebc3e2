"""What all translating sides have in common: text in, text out, timed, and their batch size tried out."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from scripts.benchmark.session import Channel, Job, peak_mb, resident_mb, serve, synchronize
from scripts.benchmark.workload import decoding_texts

NUM_TEXTS_TO_TRY = 512


class Translating(Protocol):
    """A model that translates."""

    @property
    def beam_sizes(self) -> Sequence[int]:
        """What it can search with; 1 is greedy."""

    @property
    def batchings(self) -> Sequence[str]:
        """Ways to make batches, among which the fastest is taken."""

    def translate(self, texts: Sequence[str], beam_size: int, batching: str) -> list[str]:
        """One line out for each line in."""


def serve_translations(channel: Channel, job: Job, translator: Translating) -> None:
    """Answer `warm_up`, `translate` and `one_by_one`."""
    texts = decoding_texts(job.folder)
    loaded_mb = resident_mb(job.device)
    best: dict[int, str] = {}

    def timed(some: Sequence[str], beam_size: int, batching: str) -> tuple[float, list[str]]:
        synchronize(job.device)
        started = time.perf_counter()
        lines = translator.translate(some, beam_size, batching)
        synchronize(job.device)
        return time.perf_counter() - started, lines

    def warm_up(*, beam_size: int) -> Mapping[str, Any]:
        if beam_size not in translator.beam_sizes:
            return {"can": False}
        some = texts[:NUM_TEXTS_TO_TRY]
        timed(some[:10], beam_size, translator.batchings[0])
        # Those with one way only are warmed up as the others are.
        seconds = {batching: timed(some, beam_size, batching)[0] for batching in translator.batchings}
        best[beam_size] = min(seconds, key=seconds.__getitem__)
        return {"can": True, "batching": best[beam_size]}

    def translate(*, beam_size: int) -> Mapping[str, Any]:
        seconds, lines = timed(texts, beam_size, best[beam_size])
        peak = peak_mb(job.device)
        return {"seconds": seconds, "lines": lines, "peak_mb": peak, "added_mb": peak - loaded_mb}

    def one_by_one(*, beam_size: int, first: int, last: int) -> Mapping[str, Any]:
        return {"seconds": [timed([text], beam_size, best[beam_size])[0] for text in texts[first:last]]}

    serve(channel, {"warm_up": warm_up, "translate": translate, "one_by_one": one_by_one})
